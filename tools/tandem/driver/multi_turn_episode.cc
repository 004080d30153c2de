#include "tools/tandem/driver/multi_turn_episode.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "tools/tandem/environment/observation_text.h"

namespace tandem::driver {
namespace {

using environment::Reply;
using environment::SampledTurn;
using nlohmann::ordered_json;

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

class MultiTurnEpisode : public Episode {
 public:
  MultiTurnEpisode(const Prompt& prompt, std::unique_ptr<environment::Environment> environment,
                   const EpisodeLimits& limits, const tokenizer::Tokenizer* tokenizer)
      : prompt_(prompt),
        environment_(std::move(environment)),
        limits_(limits),
        tokenizer_(tokenizer),
        so_far_(prompt.text) {
    turn_.token_ids = prompt.token_ids;
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
    out_.segments.push_back({EpisodeSegment::Kind::kSampled, size, 0});
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
    return absl::OkStatus();
  }

  // Tells the policy what is wrong with its calls, without the environment; nullopt if nothing is.
  std::optional<absl::StatusOr<Reply>> AnswerMalformedCalls() {
    environment::ToolCalls found = environment::ParseHermesToolCalls(sampled_.text);
    sampled_.tool_calls = std::move(found.calls);
    if (found.is_open && sampled_.is_ended) {
      found.problems.push_back("the tool call is not closed; expected </tool_call>");
    }
    if (found.problems.empty() || sampled_.is_cut) return std::nullopt;
    asked_ = absl::Now();
    Reply reply;
    reply.num_malformed_calls = static_cast<int64_t>(found.problems.size());
    reply.num_tool_calls =
        reply.num_malformed_calls + static_cast<int64_t>(sampled_.tool_calls.size());
    reply.messages = ordered_json::array();
    for (const std::string& problem : found.problems) {
      reply.messages.push_back({{"role", "tool"}, {"content", absl::StrCat("error: ", problem)}});
    }
    if (!sampled_.tool_calls.empty()) {
      reply.messages.push_back(
          {{"role", "tool"}, {"content", "no call of this turn was executed; repeat all of them"}});
    }
    return reply;
  }

  // Appends an observation; false if it leaves no room for another token.
  absl::StatusOr<bool> AddObservation(const Reply& reply) {
    if (!reply.messages.empty() && prompt_.chat.has_value()) return AddMessages(reply.messages);
    std::string text = reply.continuation;
    std::vector<uint32_t> ids = reply.token_ids;
    if (ids.empty()) {
      for (const ordered_json& message : reply.messages) {
        absl::StrAppend(&text, message["content"].get<std::string>());
      }
      ASSIGN_OR_RETURN(ids, Tokenize(text));
    } else if (tokenizer_ != nullptr) {
      ASSIGN_OR_RETURN(text, tokenizer_->Decode(std::vector<int32_t>(ids.begin(), ids.end()),
                                                /*skip_special_tokens=*/true));
    }
    AddIds(ids, EpisodeSegment::Kind::kObservation);
    // In a chat the assistant's message goes on after it; the environment sees what follows.
    if (prompt_.chat.has_value()) begun_text_ += sampled_.text + text;
    EndTurn(text);
    return HasRoom();
  }

  absl::StatusOr<bool> AddMessages(const ordered_json& observation) {
    messages_.push_back({{"role", "assistant"}, {"content", begun_text_ + sampled_.text}});
    tokenizer::ChatOptions options;
    options.tools = prompt_.chat->tools;
    options.extra = prompt_.chat->variables;
    ASSIGN_OR_RETURN(const environment::ObservationText rendered,
                     environment::RenderObservation(messages_, observation, so_far_, end_token_,
                                                    options, *tokenizer_));
    if (rendered.mismatch.has_value() && !limits_.splits) {
      return absl::InvalidArgumentError(absl::StrCat(
          *rendered.mismatch,
          "; use a template that only appends, or set environment.on_template_mismatch=split"));
    }
    if (rendered.mismatch.has_value()) {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, Tokenize(rendered.with_all));
      turn_.token_ids.clear();
      AddIds(ids, EpisodeSegment::Kind::kPrompt);
    } else {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, Tokenize(rendered.text));
      AddIds(ids, EpisodeSegment::Kind::kObservation);
    }
    for (const ordered_json& message : observation) messages_.push_back(message);
    so_far_ = rendered.with_all;
    begun_text_.clear();
    EndTurn(rendered.text);
    return HasRoom();
  }

  absl::StatusOr<std::vector<uint32_t>> Tokenize(const std::string& text) const {
    if (tokenizer_ == nullptr) {
      return absl::InvalidArgumentError(
          "the environment answered with text, but the model's folder has no tokenizer; answer "
          "with "
          "token_ids");
    }
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                     tokenizer_->Encode(text, /*add_special_tokens=*/false));
    return std::vector<uint32_t>(ids.begin(), ids.end());
  }

  void AddIds(const std::vector<uint32_t>& ids, EpisodeSegment::Kind kind) {
    if (ids.empty()) return;
    before_observation_ = out_.token_ids.size();
    text_before_observation_ = out_.text;
    Append(ids, turn_.token_ids);
    Append(ids, out_.token_ids);
    out_.logprobs.resize(out_.token_ids.size());
    out_.processed_logprobs.resize(out_.token_ids.size());
    const auto size = static_cast<int64_t>(ids.size());
    out_.segments.push_back({kind, size, 0});
    if (kind == EpisodeSegment::Kind::kObservation) num_tokens_ += size;
  }

  // The next sampled tokens belong to a new turn; `observation` lies between.
  void EndTurn(const std::string& observation) {
    earlier_text_ = out_.text + observation;
    sampled_.token_ids.clear();
    sampled_.text.clear();
  }

  // Whether a token may follow the observation; otherwise takes the observation back, so that the
  // completion ends with what the policy said.
  bool HasRoom() {
    if (room() > 0) return true;
    if (out_.segments.back().kind == EpisodeSegment::Kind::kSampled) return false;  // it was empty
    out_.token_ids.resize(before_observation_);
    out_.logprobs.resize(before_observation_);
    out_.processed_logprobs.resize(before_observation_);
    out_.text = text_before_observation_;
    out_.segments.pop_back();
    return false;
  }

  const Prompt& prompt_;
  const std::unique_ptr<environment::Environment> environment_;
  const EpisodeLimits limits_;
  const tokenizer::Tokenizer* const tokenizer_;

  Turn turn_;  // the next request; its ids are everything so far
  Completion out_;
  int64_t num_tokens_ = 0;    // sampled and observed
  SampledTurn sampled_;       // the present turn
  std::string end_token_;     // text of the token that ended it, or empty
  std::string earlier_text_;  // of the completion, before the present turn
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
                                              const tokenizer::Tokenizer* tokenizer) {
  return std::make_unique<MultiTurnEpisode>(prompt, std::move(environment), limits, tokenizer);
}

}  // namespace tandem::driver
