#include "tools/tandem/driver/teachers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/model/reward_model_spec.h"
#include "common/status/status_macros.h"
#include "common/telemetry/trace.h"
#include "tools/tandem/driver/episode_sequences.h"
#include "tools/tandem/driver/reward_source.h"
#include "tools/tandem/driver/teacher_folder.h"

namespace tandem::driver {
namespace {

std::string DataSourceOf(const Prompt& prompt) {
  const auto found = prompt.fields.find("data_source");
  if (found == prompt.fields.end() || !found->is_string()) return "";
  return found->get<std::string>();
}

int64_t NumTokens(const GivenSequence& sequence) {
  int64_t count = 0;
  for (const TokenRun& run : sequence) count += static_cast<int64_t>(run.token_ids.size());
  return count;
}

std::vector<uint32_t> IdsOf(const EpisodeSequence& sequence) {
  std::vector<uint32_t> ids = sequence.prompt_ids;
  for (const SequencePart& part : sequence.parts) {
    ids.insert(ids.end(), part.token_ids.begin(), part.token_ids.end());
  }
  return ids;
}

std::vector<uint32_t> IdsOf(const common::v1::Sample& sample) {
  std::vector<uint32_t> ids;
  for (const common::v1::Segment& segment : sample.segments()) {
    ids.insert(ids.end(), segment.token_ids().begin(), segment.token_ids().end());
  }
  return ids;
}

// The first token that a teacher is asked for: the first one that was sampled. The tokens before it,
// which the samples of a group share, are computed once. 0 if nothing was.
size_t FirstScored(const EpisodeSequence& sequence) {
  size_t position = sequence.prompt_ids.size();
  for (const SequencePart& part : sequence.parts) {
    if (part.is_sampled) return position;
    position += part.token_ids.size();
  }
  return 0;
}

size_t FirstScored(const common::v1::Sample& sample) {
  int position = 0;
  for (const common::v1::Segment& segment : sample.segments()) {
    if (segment.kind() == common::v1::SEGMENT_KIND_SAMPLED) return static_cast<size_t>(position);
    position += segment.token_ids_size();
  }
  return 0;
}

// Gives the sampled tokens of a sequence their log-probs, and the `top_k` likeliest tokens in their
// places. `begin`: the place in the completion of the sequence's first token after its prompt, which
// moves on to its end.
void TakeLogProbs(const EpisodeSequence& sequence, const rollout::v1::ScoreResponse& scored,
                  size_t top_k, size_t& begin, Completion& out) {
  const size_t first = std::max<size_t>(1, FirstScored(sequence));
  size_t position = sequence.prompt_ids.size();
  for (const SequencePart& part : sequence.parts) {
    for (size_t i = 0; i < part.token_ids.size(); ++i, ++position, ++begin) {
      // Nothing predicts the first token of a sequence, which is not trained on.
      if (!part.is_sampled || position == 0) continue;
      out.teacher_logprobs[begin] = scored.logprobs(static_cast<int>(position - first));
      const size_t from = (position - first) * top_k;
      std::copy_n(scored.top_token_ids().begin() + from, top_k,
                  out.teacher_top_ids.begin() + begin * top_k);
      std::copy_n(scored.top_logprobs().begin() + from, top_k,
                  out.teacher_top_logprobs.begin() + begin * top_k);
    }
  }
}

// The same for the likeliest tokens of a sample. The first token of a sequence, which is not trained on,
// has `top_k` times id 0.
void TakeTop(const rollout::v1::ScoreResponse& scored, int top_k, common::v1::Sample& sample) {
  const int first = std::max(1, static_cast<int>(FirstScored(sample)));
  int position = 0;
  for (common::v1::Segment& segment : *sample.mutable_segments()) {
    const bool is_sampled = segment.kind() == common::v1::SEGMENT_KIND_SAMPLED;
    for (int i = 0; i < segment.token_ids_size(); ++i, ++position) {
      if (!is_sampled) continue;
      for (int k = 0; k < top_k; ++k) {
        const int at = (position - first) * top_k + k;
        segment.add_teacher_top_ids(position > 0 ? scored.top_token_ids(at) : 0);
        segment.add_teacher_top_logprobs(position > 0 ? scored.top_logprobs(at) : 0);
      }
    }
  }
}

std::string NameOf(const config::TeacherSource& source) {
  return source.path.empty() ? absl::StrCat("the teacher at ", source.endpoint)
                             : absl::StrCat("the teacher ", source.path);
}

std::string ServedName(size_t index) { return absl::StrCat("teacher-", index); }

absl::StatusOr<rollout::v1::ScoreRequest> RequestOf(const std::vector<uint32_t>& ids,
                                                    size_t first_scored,
                                                    const std::vector<PromptImage>& images,
                                                    double temperature, int32_t num_top_logprobs) {
  rollout::v1::ScoreRequest request;
  request.mutable_token_ids()->Add(ids.begin(), ids.end());
  request.set_first_scored_token(static_cast<int64_t>(first_scored));
  request.set_temperature(temperature);
  request.set_num_top_logprobs(num_top_logprobs);
  for (const PromptImage& image : images) {
    ASSIGN_OR_RETURN(std::string file, ReadImageFile(image));
    request.add_images()->set_data(std::move(file));
  }
  return request;
}

// The images that the sample names, which are the prompt's, in the order of its tokens.
absl::StatusOr<std::vector<PromptImage>> ImagesOf(const common::v1::Sample& sample,
                                                  const Prompt& prompt) {
  StepImages known;
  for (const PromptImage& image : prompt.images) known.try_emplace(image.digest, image);
  std::vector<PromptImage> out;
  for (const common::v1::Segment& segment : sample.segments()) {
    for (const std::string& digest : segment.image_digests()) {
      const auto found = known.find(digest);
      if (found == known.end()) {
        return absl::InternalError("a sample names an image that its row does not have");
      }
      out.push_back(found->second);
    }
  }
  return out;
}

}  // namespace

class Teachers::ScopedCall {
 public:
  explicit ScopedCall(Teachers& teachers) : teachers_(teachers) {
    absl::MutexLock lock(&teachers_.mu_);
    if (teachers_.num_calls_++ == 0) teachers_.busy_since_ = absl::Now();
  }
  ~ScopedCall() {
    absl::MutexLock lock(&teachers_.mu_);
    if (--teachers_.num_calls_ > 0) return;
    teachers_.seconds_ += absl::ToDoubleSeconds(absl::Now() - teachers_.busy_since_);
  }

 private:
  Teachers& teachers_;
};

Teachers::Teachers(const config::v1::RunConfig& config, const Policy& policy)
    : config_(config), vocab_size_(policy.vocab_size) {
  for (config::TeacherSource& source : config::TeachersOf(config)) {
    teachers_.push_back({std::move(source), nullptr});
  }
}

absl::StatusOr<std::unique_ptr<Teachers>> Teachers::Create(const config::v1::RunConfig& config,
                                                           const Policy& policy) {
  std::unique_ptr<Teachers> out(new Teachers(config, policy));
  if (out->teachers_.empty()) return nullptr;
  if (config.teacher().top_k() > policy.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("teacher.top_k: expected at most the vocabulary's %d tokens, found %d",
                        policy.vocab_size, config.teacher().top_k()));
  }
  for (const Teacher& teacher : out->teachers_) {
    if (teacher.source.path.empty()) continue;
    RETURN_IF_ERROR(CheckTeacherFolder(teacher.source.key + ".path", teacher.source.path,
                                       policy.vocab_size, policy.tokenizer));
  }
  return out;
}

absl::StatusOr<size_t> Teachers::TeacherOf(const Prompt& prompt) const {
  const std::string data_source = DataSourceOf(prompt);
  for (size_t i = 0; i < teachers_.size(); ++i) {
    const std::string& of_teacher = teachers_[i].source.data_source;
    if (of_teacher.empty() || of_teacher == data_source) return i;
  }
  return absl::InvalidArgumentError(
      data_source.empty()
          ? "expected a data_source, by which teacher.teachers has the teachers; found none"
          : absl::StrCat("data_source ", data_source, " has no teacher in teacher.teachers"));
}

absl::Status Teachers::CheckFits(const std::string& what, int64_t num_tokens) const {
  const int64_t ids = num_tokens * config_.teacher().top_k();
  if (ids <= config::kMaxTopIdsOfSequence) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %d tokens with teacher.top_k %d need %d ids, but an answer of the teacher holds %d; "
      "lower "
      "teacher.top_k",
      what, num_tokens, config_.teacher().top_k(), ids, config::kMaxTopIdsOfSequence));
}

absl::Status Teachers::CheckRows(const PromptSource& rows) const {
  for (const Prompt& prompt : rows.prompts()) {
    RETURN_IF_ERROR(TeacherOf(prompt).status()) << rows.PlaceOf(prompt);
    for (const GivenSequence& sequence : prompt.given) {
      RETURN_IF_ERROR(CheckFits(rows.PlaceOf(prompt), NumTokens(sequence)));
    }
  }
  return absl::OkStatus();
}

std::vector<ServedFolder> Teachers::served_folders() const {
  std::vector<ServedFolder> out;
  for (size_t i = 0; i < teachers_.size(); ++i) {
    const config::TeacherSource& source = teachers_[i].source;
    if (!source.path.empty()) out.push_back({ServedName(i), source.key, source.path});
  }
  return out;
}

absl::Status Teachers::CheckServer(const Teacher& teacher, const ConnectOptions& options) const {
  const std::string name = NameOf(teacher.source);
  const std::string key =
      teacher.source.key + (teacher.source.path.empty() ? ".endpoint" : ".path");
  const absl::StatusOr<rollout::v1::GetServerInfoResponse> info =
      teacher.client->GetServerInfo(options.timeout, options.interrupted);
  RETURN_IF_ERROR(info.status()) << key;
  if (model::IsRewardArchitecture(info->architecture())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected a language model, found the reward model %s at %s", key,
                        info->architecture(), name));
  }
  if (info->vocab_size() != vocab_size_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected a model with the policy's vocabulary of %d tokens, found %d at %s", key,
        vocab_size_, info->vocab_size(), name));
  }
  if (info->max_model_len() < options.longest_sequence) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected a teacher that takes the run's longest sequence, %d tokens; %s takes %d (its "
        "positions, rollout.max_model_len or its cache)",
        key, options.longest_sequence, name, info->max_model_len()));
  }
  return absl::OkStatus();
}

absl::Status Teachers::Connect(const ConnectOptions& options) {
  RETURN_IF_ERROR(CheckFits("the run's longest sequence", options.longest_sequence));
  for (size_t i = 0; i < teachers_.size(); ++i) {
    Teacher& teacher = teachers_[i];
    ScoreClient::Options client;
    client.name = NameOf(teacher.source);
    client.timeout = absl::Seconds(config_.teacher().timeout_s());
    client.timeout_key = "teacher.timeout_s";
    client.interrupted = options.interrupted;
    if (teacher.source.path.empty()) {
      client.address = [endpoint = teacher.source.endpoint] { return endpoint; };
    } else {
      client.address = [address_of = options.address_of, name = ServedName(i)] {
        return address_of(name);
      };
    }
    teacher.client = std::make_unique<TeacherClient>(std::move(client));
    RETURN_IF_ERROR(CheckServer(teacher, options));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> Teachers::ScoreEach(
    const std::vector<const Prompt*>& prompts, std::vector<rollout::v1::ScoreRequest> requests) {
  const ScopedCall call(*this);
  std::map<size_t, std::vector<size_t>> by_teacher;
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::StatusOr<size_t> teacher = TeacherOf(*prompts[i]);
    RETURN_IF_ERROR(teacher.status()) << RowName(*prompts[i]);
    by_teacher[*teacher].push_back(i);
  }
  std::vector<rollout::v1::ScoreResponse> out(requests.size());
  for (const auto& [teacher, indices] : by_teacher) {
    std::vector<rollout::v1::ScoreRequest> of_teacher;
    for (const size_t i : indices) of_teacher.push_back(std::move(requests[i]));
    absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> responses =
        teachers_[teacher].client->Score(std::move(of_teacher));
    RETURN_IF_ERROR(responses.status()) << RowName(*prompts[indices.front()]) << " and following";
    for (size_t k = 0; k < indices.size(); ++k) out[indices[k]] = std::move((*responses)[k]);
  }
  return out;
}

absl::Status Teachers::Score(std::vector<Group>& groups) {
  // The trainer counts temperature 0 as 1.
  const double temperature =
      config_.rollout().temperature() > 0 ? config_.rollout().temperature() : 1.0;
  std::vector<const Prompt*> prompts;
  std::vector<rollout::v1::ScoreRequest> requests;
  for (const Group& group : groups) {
    for (const Completion& completion : group.completions) {
      for (const EpisodeSequence& sequence :
           SequencesOf(group.prompt.token_ids, completion, group.prompt.images)) {
        prompts.push_back(&group.prompt);
        absl::StatusOr<rollout::v1::ScoreRequest> request = RequestOf(
            IdsOf(sequence), FirstScored(sequence), sequence.images(), temperature, top_k());
        RETURN_IF_ERROR(request.status()) << RowName(group.prompt);
        requests.push_back(*std::move(request));
      }
    }
  }
  const telemetry::ScopedSpan span("teacher", {{"sequences", requests.size()}});
  ASSIGN_OR_RETURN(const std::vector<rollout::v1::ScoreResponse> responses,
                   ScoreEach(prompts, std::move(requests)));
  size_t next = 0;
  for (Group& group : groups) {
    for (Completion& completion : group.completions) {
      const size_t num_tokens = completion.token_ids.size();
      const auto num_top = num_tokens * static_cast<size_t>(top_k());
      completion.teacher_logprobs.assign(num_tokens, 0.0f);
      completion.teacher_top_ids.assign(num_top, 0);
      completion.teacher_top_logprobs.assign(num_top, 0.0f);
      size_t begin = 0;
      bool prompt_is_before = !BeginsWithItsPrompt(completion);  // the first sequence's
      for (const EpisodeSequence& sequence : SequencesOf(group.prompt.token_ids, completion)) {
        // The prompts of later sequences are tokens of the completion.
        if (!std::exchange(prompt_is_before, false)) begin += sequence.prompt_ids.size();
        TakeLogProbs(sequence, responses[next++], static_cast<size_t>(top_k()), begin, completion);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Teachers::ScoreTop(const std::vector<const Prompt*>& prompts,
                                std::vector<common::v1::Sample>& samples) {
  std::vector<rollout::v1::ScoreRequest> requests;
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSIGN_OR_RETURN(const std::vector<PromptImage> images, ImagesOf(samples[i], *prompts[i]));
    absl::StatusOr<rollout::v1::ScoreRequest> request =
        RequestOf(IdsOf(samples[i]), FirstScored(samples[i]), images, 1.0, top_k());
    RETURN_IF_ERROR(request.status()) << RowName(*prompts[i]);
    requests.push_back(*std::move(request));
  }
  ASSIGN_OR_RETURN(const std::vector<rollout::v1::ScoreResponse> responses,
                   ScoreEach(prompts, std::move(requests)));
  for (size_t i = 0; i < samples.size(); ++i) TakeTop(responses[i], top_k(), samples[i]);
  return absl::OkStatus();
}

double Teachers::TakeSeconds() {
  absl::MutexLock lock(&mu_);
  if (num_calls_ > 0) {
    const absl::Time now = absl::Now();
    seconds_ += absl::ToDoubleSeconds(now - std::exchange(busy_since_, now));
  }
  return std::exchange(seconds_, 0);
}

}  // namespace tandem::driver
