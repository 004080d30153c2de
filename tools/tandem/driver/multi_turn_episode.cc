#include "tools/tandem/driver/multi_turn_episode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/observation_text.h"
#include "common/tool_calls/registry.h"
#include "tools/tandem/driver/completion_experts.h"
#include "tools/tandem/driver/prompt_text.h"
#include "tools/tandem/environment/turn_calls.h"

namespace tandem::driver {
namespace {

using environment::Reply;
using environment::SampledTurn;
using nlohmann::ordered_json;

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// The format in which the chat template has calls; null outside a chat, or if it is unknown.
const tool_calls::Format* FormatOfChat(const Prompt& prompt,
                                       const tokenizer::Tokenizer* tokenizer) {
  if (!prompt.chat.has_value() || tokenizer == nullptr) return nullptr;
  const std::string* const chat_template = tokenizer->chat_template(/*with_tools=*/true);
  return chat_template == nullptr ? nullptr : tool_calls::DetectFormat(*chat_template);
}

class MultiTurnEpisode : public Episode {
 public:
  MultiTurnEpisode(const Prompt& prompt, std::unique_ptr<environment::Environment> environment,
                   const EpisodeLimits& limits, const tokenizer::Tokenizer* tokenizer,
                   const EpisodeSight& sight)
      : prompt_(prompt),
        environment_(std::move(environment)),
        limits_(limits),
        tokenizer_(tokenizer),
        sight_(sight),
        chat_format_(FormatOfChat(prompt, tokenizer)),
        so_far_(prompt.text) {
    turn_.token_ids = prompt.token_ids;
    turn_.images = prompt.images;
    if (sight_.reader != nullptr) seen_ = sight_.reader->Expanded(prompt.token_ids, prompt.images);
    turn_.stop = environment_->stop();
    if (prompt.chat.has_value()) messages_ = prompt.chat->messages;
  }

  absl::StatusOr<Turn> FirstTurn() override {
    if (turn_.token_ids.empty()) {
      return absl::InternalError("expected a prompt of tokens in an episode of several turns");
    }
    turn_.max_tokens = std::min(limits_.max_turn_tokens, limits_.max_tokens);
    return turn_;
  }

  bool Continue(Completion completion, std::function<void()> ready) override {
    error_ = AddSampled(std::move(completion));
    if (!error_.ok()) return true;
    reply_ = AnswerMalformedCalls();
    if (reply_.has_value()) return true;
    asked_ = absl::Now();
    auto reply = environment_->Step(sampled_, [this, ready](absl::StatusOr<Reply> later) {
      reply_ = std::move(later);
      ready();
    });
    // If there is none yet, another thread may set reply_ by now.
    if (!reply.has_value()) return false;
    reply_ = std::move(reply);
    return true;
  }

  absl::StatusOr<std::optional<Turn>> NextTurn() override {
    RETURN_IF_ERROR(error_);
    out_.facts.environment_seconds += absl::ToDoubleSeconds(absl::Now() - asked_);
    ASSIGN_OR_RETURN(Reply reply, *std::exchange(reply_, std::nullopt));
    out_.segments.back().reward += reply.reward;
    out_.facts.num_tool_calls += reply.num_tool_calls;
    out_.facts.num_malformed_calls += reply.num_malformed_calls;
    if (sampled_.is_cut) return End(common::v1::FINISH_REASON_LENGTH);
    const bool says_nothing =
        reply.messages.empty() && reply.continuation.empty() && reply.token_ids.empty();
    if (reply.done || (says_nothing && !reply.goes_on)) return End(common::v1::FINISH_REASON_STOP);
    if (!says_nothing) {
      if (out_.facts.num_turns >= limits_.max_turns) {
        return End(common::v1::FINISH_REASON_MAX_TURNS);
      }
      ASSIGN_OR_RETURN(const bool has_room, AddObservation(reply));
      if (!has_room) return End(common::v1::FINISH_REASON_LENGTH);
    }
    turn_.max_tokens = std::min(limits_.max_turn_tokens, room());
    if (turn_.max_tokens <= 0) return End(common::v1::FINISH_REASON_LENGTH);
    return turn_;
  }

  Completion Take() override { return std::move(out_); }

 private:
  // Tokens that may still follow.
  int64_t room() const {
    const auto length = static_cast<int64_t>(turn_.token_ids.size());
    const int64_t longest = static_cast<int64_t>(prompt_.token_ids.size()) + limits_.max_tokens;
    int64_t room = std::min(limits_.max_tokens - num_tokens_, longest - length);
    if (limits_.max_length > 0) room = std::min(room, limits_.max_length - length);
    return room;
  }

  absl::StatusOr<std::optional<Turn>> End(common::v1::FinishReason reason) {
    out_.finish_reason = reason;
    return std::nullopt;
  }

  // Appends what the policy sampled, and makes the turn that the environment sees.
  absl::Status AddSampled(Completion completion) {
    if (completion.token_ids.empty()) {
      return absl::InternalError("expected a turn of at least one token, found none");
    }
    const auto begin = static_cast<int64_t>(out_.token_ids.size());
    AddExperts(completion);
    Append(completion.token_ids, turn_.token_ids);
    Append(completion.token_ids, out_.token_ids);
    Append(completion.logprobs, out_.logprobs);
    Append(completion.processed_logprobs, out_.processed_logprobs);
    for (common::v1::VersionSpan span : completion.version_spans) {
      span.set_begin(span.begin() + begin);
      span.set_end(span.end() + begin);
      out_.version_spans.push_back(std::move(span));
    }
    const auto size = static_cast<int64_t>(completion.token_ids.size());
    out_.segments.push_back({common::v1::SEGMENT_KIND_SAMPLED, size, 0});
    num_tokens_ += size;
    if (begin > 0) {  // not the first request, which all of the group share
      out_.facts.num_prompt_tokens += completion.num_prompt_tokens;
      out_.facts.num_cached_tokens += completion.num_cached_tokens;
    }
    out_.replica = turn_.replica = completion.replica;

    if (sampled_.token_ids.empty()) sampled_.number = ++out_.facts.num_turns;
    Append(completion.token_ids, sampled_.token_ids);
    sampled_.is_cut = completion.finish_reason == common::v1::FINISH_REASON_LENGTH;
    RETURN_IF_ERROR(ReadText(completion.token_ids));
    return absl::OkStatus();
  }

  // Appends the experts of the sampled tokens. The request computed all tokens before them, so that it
  // tells the experts of observations, and of the last token of each earlier turn.
  void AddExperts(const Completion& completion) {
    const size_t each = BytesPerToken(completion);
    if (each == 0) return;
    const absl::string_view before = completion.prompt_routed_experts;
    const size_t tail = std::min(turn_.token_ids.size(), out_.token_ids.size());
    const size_t of_prompt = before.size() - std::min(before.size(), tail * each);
    FillUnknown(before.substr(of_prompt), each, (out_.token_ids.size() - tail) * each,
                out_.routed_experts);
    if (out_.token_ids.empty()) {
      out_.prompt_routed_experts = completion.prompt_routed_experts;
      out_.num_prompt_tokens = completion.num_prompt_tokens;
    }
    absl::StrAppend(&out_.routed_experts, completion.routed_experts);
  }

  // Sets the text of the turn, and whether the model ended it.
  absl::Status ReadText(const std::vector<uint32_t>& latest) {
    sampled_.is_ended = !sampled_.is_cut;
    end_token_.clear();
    if (tokenizer_ == nullptr) return absl::OkStatus();
    const auto last = static_cast<int32_t>(latest.back());
    sampled_.is_ended = !sampled_.is_cut && tokenizer_->IsSpecial(last);
    if (sampled_.is_ended) {
      ASSIGN_OR_RETURN(end_token_, tokenizer_->Decode({last}, /*skip_special_tokens=*/false));
    }
    // All of the turn at once: a character may span two requests.
    const std::vector<int32_t> ids(sampled_.token_ids.begin(), sampled_.token_ids.end());
    ASSIGN_OR_RETURN(sampled_.text, tokenizer_->Decode(ids, /*skip_special_tokens=*/true));
    out_.text = earlier_text_ + sampled_.text;

    std::vector<uint32_t> body = sampled_.token_ids;
    if (sampled_.is_ended) body.pop_back();
    ASSIGN_OR_RETURN(const environment::MarkedText marked,
                     environment::DecodeMarked(body, *tokenizer_));
    calls_ =
        environment::ParseTurnCalls(chat_format_ == nullptr ? tool_calls::Hermes() : *chat_format_,
                                    marked, sampled_.is_ended, num_calls_);
    sampled_.tool_calls = calls_.calls;
    return absl::OkStatus();
  }

  // Tells the policy what is wrong with its calls, without the environment; nullopt if nothing is.
  std::optional<absl::StatusOr<Reply>> AnswerMalformedCalls() {
    if (calls_.problems.empty() || sampled_.is_cut) return std::nullopt;
    asked_ = absl::Now();
    Reply reply;
    reply.num_malformed_calls = static_cast<int64_t>(calls_.problems.size());
    reply.num_tool_calls =
        reply.num_malformed_calls + static_cast<int64_t>(sampled_.tool_calls.size());
    reply.messages = ordered_json::array();
    // Templates with ids of calls take no answer of a tool without a call.
    const char* const role = chat_format_ != nullptr && chat_format_->short_ids ? "user" : "tool";
    for (const std::string& problem : calls_.problems) {
      reply.messages.push_back({{"role", role}, {"content", absl::StrCat("error: ", problem)}});
    }
    if (!sampled_.tool_calls.empty()) {
      reply.messages.push_back(
          {{"role", role}, {"content", "no call of this turn was executed; repeat all of them"}});
    }
    return reply;
  }

  // Appends an observation; false if it leaves no room for another token.
  absl::StatusOr<bool> AddObservation(const Reply& reply) {
    ASSIGN_OR_RETURN(const ImageReader::Images shown, ReadImages(reply.images));
    if (!reply.messages.empty() && prompt_.chat.has_value()) {
      return AddMessages(reply.messages, shown);
    }
    std::string text = reply.continuation;
    std::vector<uint32_t> ids = reply.token_ids;
    if (ids.empty()) {
      for (const ordered_json& message : reply.messages) {
        if (!message["content"].is_string()) {
          return absl::InvalidArgumentError(
              "the environment shows an image in a message, which needs a prompt of messages and a "
              "chat template; answer with token_ids and images");
        }
        absl::StrAppend(&text, message["content"].get<std::string>());
      }
      ASSIGN_OR_RETURN(ids, Tokenize(text));
    } else if (tokenizer_ != nullptr) {
      ASSIGN_OR_RETURN(text, tokenizer_->Decode(std::vector<int32_t>(ids.begin(), ids.end()),
                                                /*skip_special_tokens=*/true));
    }
    if (sight_.reader != nullptr) {
      const absl::Status fits = sight_.reader->CheckFit(ids, shown);
      if (!fits.ok()) return io::AtPlace("the observation", fits);
    }
    AddIds(ids, common::v1::SEGMENT_KIND_ENVIRONMENT, shown.files(), PlacesIn(text, shown));
    // In a chat the assistant's message goes on after it; the environment sees what follows.
    if (prompt_.chat.has_value()) begun_text_ += sampled_.text + text;
    EndTurn(text);
    return HasRoom();
  }

  // The present turn as a message. A template that knows calls gets them as such: it renders them,
  // and finds the calls that tools answer.
  ordered_json AssistantMessage() const {
    if (chat_format_ == nullptr || calls_.calls.empty()) {
      return {{"role", "assistant"}, {"content", begun_text_ + sampled_.text}};
    }
    ordered_json calls = ordered_json::array();
    for (const environment::ToolCall& call : calls_.calls) {
      calls.push_back({{"id", call.id},
                       {"type", "function"},
                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return {{"role", "assistant"},
            {"content", begun_text_ + calls_.content},
            {"tool_calls", std::move(calls)}};
  }

  // Answers of tools get the ids of the turn's calls, in order.
  ordered_json WithCallIds(ordered_json observation) const {
    size_t next = 0;
    for (ordered_json& message : observation) {
      if (next == calls_.calls.size()) break;
      if (message["role"] != "tool") continue;
      if (!message.contains("tool_call_id")) message["tool_call_id"] = calls_.calls[next].id;
      ++next;
    }
    return observation;
  }

  // Keeps what the environment shows, and adds it to what the episode has seen.
  absl::StatusOr<ImageReader::Images> ReadImages(const std::vector<ImageFile>& files) {
    if (files.empty()) {
      return sight_.reader == nullptr ? ImageReader::Images() : sight_.reader->Expanded({}, {});
    }
    if (sight_.reader == nullptr) {
      return absl::InvalidArgumentError(
          "the environment shows an image, but the model has no vision tower");
    }
    absl::StatusOr<ImageReader::Images> shown =
        sight_.reader->ReadShown(files, seen_.files().size(), *sight_.store);
    if (!shown.ok()) return io::AtPlace("the observation", shown.status());
    seen_.Append(*shown);
    int64_t num_bytes = 0;
    for (const PromptImage& image : seen_.files()) num_bytes += SizeOf(image);
    if (num_bytes <= ImageReader::kMaxRowBytes) return shown;
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", ImageReader::kMaxRowBytes,
                     " bytes of images in an episode, which a request has all of, found ",
                     num_bytes, "; let the environment show smaller pictures, or fewer"));
  }

  absl::StatusOr<bool> AddMessages(const ordered_json& messages, const ImageReader::Images& shown) {
    const ordered_json observation = WithCallIds(messages);
    messages_.push_back(AssistantMessage());
    tokenizer::ChatOptions options;
    options.tools = prompt_.chat->tools;
    options.extra = prompt_.chat->variables;
    ASSIGN_OR_RETURN(const tokenizer::ObservationText rendered,
                     tokenizer::RenderObservation(messages_, observation, so_far_, end_token_,
                                                  options, *tokenizer_));
    if (rendered.mismatch.has_value() && !limits_.splits) {
      return absl::InvalidArgumentError(absl::StrCat(
          *rendered.mismatch,
          "; use a template that only appends, or set environment.on_template_mismatch=split"));
    }
    if (rendered.mismatch.has_value()) {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, Tokenize(rendered.with_all, &seen_));
      turn_.token_ids.clear();
      turn_.images.clear();
      // The text goes on as it was: only what is new is shown in it.
      std::vector<TextPlace> places(seen_.files().size() - shown.files().size(), {-1, -1});
      Append(PlacesIn(rendered.text, shown), places);
      AddIds(ids, common::v1::SEGMENT_KIND_PROMPT, seen_.files(), places);
    } else {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, Tokenize(rendered.text, &shown));
      AddIds(ids, common::v1::SEGMENT_KIND_ENVIRONMENT, shown.files(),
             PlacesIn(rendered.text, shown));
    }
    for (const ordered_json& message : observation) messages_.push_back(message);
    so_far_ = rendered.with_all;
    begun_text_.clear();
    EndTurn(rendered.text);
    return HasRoom();
  }

  // `images`: those of a rendered chat, each of which becomes as many tokens as the model sees of it;
  // null for plain text.
  absl::StatusOr<std::vector<uint32_t>> Tokenize(
      const std::string& text, const ImageReader::Images* images = nullptr) const {
    if (tokenizer_ == nullptr) {
      return absl::InvalidArgumentError(
          "the environment answered with text, but the model's folder has no tokenizer; answer "
          "with "
          "token_ids");
    }
    const bool has_images = sight_.reader != nullptr && images != nullptr;
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     tokenizer_->Encode(has_images ? images->TextForTokens(text) : text,
                                        /*add_special_tokens=*/false));
    if (has_images) {
      absl::StatusOr<std::vector<int32_t>> expanded = images->Expand(ids);
      if (!expanded.ok()) return io::AtPlace("the observation", expanded.status());
      ids = *std::move(expanded);
    }
    return std::vector<uint32_t>(ids.begin(), ids.end());
  }

  // What the images of an observation replace in the completion's text, to which its text is about to be
  // added; they stand before a text that has no placeholders for them.
  std::vector<TextPlace> PlacesIn(const std::string& observation,
                                  const ImageReader::Images& shown) const {
    const auto begin = static_cast<int64_t>(out_.text.size());
    const size_t count = shown.files().size();
    std::vector<TextPlace> places;
    if (count > 0) places = PlacesOf(sight_.reader->placeholder(), observation);
    if (places.size() != count) places.assign(count, {});
    for (TextPlace& place : places) place = {begin + place.begin, begin + place.end};
    return places;
  }

  // `images`: one for each run of placeholders in the ids; `places`: theirs.
  void AddIds(const std::vector<uint32_t>& ids, common::v1::SegmentKind kind,
              const std::vector<PromptImage>& images, const std::vector<TextPlace>& places) {
    if (ids.empty()) return;
    before_observation_ = out_.token_ids.size();
    text_before_observation_ = out_.text;
    Append(ids, turn_.token_ids);
    Append(ids, out_.token_ids);
    out_.logprobs.resize(out_.token_ids.size());
    out_.processed_logprobs.resize(out_.token_ids.size());
    FillUp(out_);
    const auto size = static_cast<int64_t>(ids.size());
    out_.segments.push_back({kind, size, 0, images, places});
    Append(images, turn_.images);
    if (kind == common::v1::SEGMENT_KIND_ENVIRONMENT) num_tokens_ += size;
  }

  // The next sampled tokens belong to a new turn; `observation` lies between.
  void EndTurn(const std::string& observation) {
    earlier_text_ = out_.text + observation;
    num_calls_ += static_cast<int64_t>(calls_.calls.size());
    calls_ = {};
    sampled_.token_ids.clear();
    sampled_.text.clear();
  }

  // Whether a token may follow the observation; otherwise takes the observation back, so that the
  // completion ends with what the policy said.
  bool HasRoom() {
    if (room() > 0) return true;
    if (out_.segments.back().kind == common::v1::SEGMENT_KIND_SAMPLED)
      return false;  // it was empty
    out_.token_ids.resize(before_observation_);
    out_.logprobs.resize(before_observation_);
    out_.processed_logprobs.resize(before_observation_);
    FillUp(out_);
    out_.text = text_before_observation_;
    out_.segments.pop_back();
    return false;
  }

  const Prompt& prompt_;
  const std::unique_ptr<environment::Environment> environment_;
  const EpisodeLimits limits_;
  const tokenizer::Tokenizer* const tokenizer_;
  const EpisodeSight sight_;
  const tool_calls::Format* const chat_format_;

  Turn turn_;  // the next request; its ids are everything so far
  Completion out_;
  ImageReader::Images seen_;      // of the prompt and all observations; if the model sees images
  int64_t num_tokens_ = 0;        // sampled and observed
  SampledTurn sampled_;           // the present turn
  environment::TurnCalls calls_;  // of the present turn
  int64_t num_calls_ = 0;         // of earlier turns
  std::string end_token_;         // text of the token that ended it, or empty
  std::string earlier_text_;      // of the completion, before the present turn
  std::optional<absl::StatusOr<Reply>> reply_;
  absl::Status error_;
  absl::Time asked_;
  size_t before_observation_ = 0;
  std::string text_before_observation_;
  // In a chat.
  ordered_json messages_;   // up to the present turn
  std::string so_far_;      // their rendered text, with the header of the present turn
  std::string begun_text_;  // of the present message, before the present turn
};

}  // namespace

std::unique_ptr<Episode> MakeMultiTurnEpisode(const Prompt& prompt,
                                              std::unique_ptr<environment::Environment> environment,
                                              const EpisodeLimits& limits,
                                              const tokenizer::Tokenizer* tokenizer,
                                              const EpisodeSight& sight) {
  return std::make_unique<MultiTurnEpisode>(prompt, std::move(environment), limits, tokenizer,
                                            sight);
}

}  // namespace tandem::driver
