#include "tools/tandem/driver/recorded_samples.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/io/file_util.h"
#include "common/io/jsonl.h"
#include "common/rpc/policy_version.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/experts_text.h"

namespace tandem::driver {
namespace {

using common::v1::Sample;
using common::v1::Segment;
using nlohmann::json;

absl::Status AddIds(const io::JsonFields& row, const std::string& key, common::v1::SegmentKind kind,
                    Sample& sample) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, row.IntList(key));
  Segment* segment = sample.add_segments();
  segment->set_kind(kind);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > UINT32_MAX) {
      return row.Error(key, absl::StrCat("[", i, "]: ", ids[i], " is not a token id"));
    }
    segment->add_token_ids(static_cast<uint32_t>(ids[i]));
  }
  return absl::OkStatus();
}

// A number for each token of the completion.
absl::StatusOr<std::vector<double>> TokenList(const io::JsonFields& row, const std::string& key,
                                              size_t num_tokens) {
  ASSIGN_OR_RETURN(std::vector<double> values, row.DoubleList(key));
  if (values.size() != num_tokens) {
    return row.Error(key, absl::StrCat("expected one number for each of the ", num_tokens,
                                       " response_ids, found ", values.size()));
  }
  return values;
}

// Reads one number for the whole completion, or one per token.
absl::StatusOr<std::vector<double>> NumberOrList(const io::JsonFields& row, const std::string& key,
                                                 size_t num_tokens) {
  if (row.json()[key].is_array()) return TokenList(row, key, num_tokens);
  ASSIGN_OR_RETURN(const double value, row.Double(key));
  return std::vector<double>(num_tokens, value);
}

// Reads the teacher's log-probs of a sampled segment.
absl::Status ReadTeacher(const io::JsonFields& row, Segment& segment) {
  if (!row.Has("teacher_logprobs")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<double> values,
                   TokenList(row, "teacher_logprobs", segment.token_ids_size()));
  segment.mutable_teacher_logprobs()->Add(values.begin(), values.end());
  return absl::OkStatus();
}

// Reads the experts of a segment's tokens; `routed` may be null, then they are left out.
absl::Status ReadExperts(const io::JsonFields& row, const std::string& key,
                         const model::RoutedLayout* routed, Segment& segment) {
  if (routed == nullptr || segment.token_ids_size() == 0) return absl::OkStatus();
  if (!row.Has(key)) {
    if (segment.kind() != common::v1::SEGMENT_KIND_SAMPLED) return absl::OkStatus();
    return row.Error(key,
                     "expected the experts that sampling routed the tokens to, because "
                     "actor.router_replay is r3; record samples with that setting, or replay these "
                     "with actor.router_replay=disabled");
  }
  ASSIGN_OR_RETURN(const std::string text, row.String(key));
  absl::StatusOr<std::string> bytes = ExpertsOfText(text);
  if (!bytes.ok()) return row.Error(key, std::string(bytes.status().message()));
  const int64_t size = segment.token_ids_size() * routed->bytes_per_token();
  if (static_cast<int64_t>(bytes->size()) != size) {
    return row.Error(key, absl::StrCat("expected ", routed->bytes_per_token(),
                                       " bytes for each of ", segment.token_ids_size(),
                                       " tokens, as this model has them, found ", bytes->size()));
  }
  std::vector<uint16_t> experts(bytes->size() / sizeof(uint16_t));
  for (size_t i = 0; i < experts.size(); ++i) {  // little endian
    experts[i] = static_cast<uint16_t>(static_cast<uint8_t>((*bytes)[2 * i]) |
                                       static_cast<uint8_t>((*bytes)[2 * i + 1]) << 8);
  }
  if (const absl::Status known = routed->Check(experts); !known.ok()) {
    return row.Error(key, std::string(known.message()));
  }
  segment.set_routed_experts(*std::move(bytes));
  return absl::OkStatus();
}

// Checks versions of spans, [version, begin, end], or of tokens. Recorded samples train with any
// version, but an invalid version shows that the file is wrong.
absl::Status CheckVersions(const io::JsonFields& row, const std::string& key) {
  if (!row.Has(key)) return absl::OkStatus();
  const json& list = row.json()[key];
  if (!list.is_array()) return row.Error(key, "expected a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const json& entry = list[i];
    const json& version = entry.is_array() && !entry.empty() ? entry[0] : entry;
    // False for negative numbers.
    const bool is_version =
        version.is_number_unsigned() &&
        version.get<uint64_t>() <= static_cast<uint64_t>(rpc::kMaxPolicyVersion);
    if (!is_version) {
      return row.Error(key, absl::StrCat("[", i, "]: expected a policy version, 0 to ",
                                         rpc::kMaxPolicyVersion, ", found ", version.dump()));
    }
  }
  return absl::OkStatus();
}

// Reads which tokens of a segment are trained on.
absl::Status ReadMask(const io::JsonFields& row, const std::string& key, Segment& segment) {
  const json& mask = row.json()[key];
  if (!mask.is_array() || mask.size() != static_cast<size_t>(segment.token_ids_size())) {
    return row.Error(key, absl::StrCat("expected a list of ", segment.token_ids_size(),
                                       " entries, one for each token"));
  }
  for (const json& entry : mask) {
    segment.add_loss_mask(entry.is_boolean() ? entry.get<bool>() : entry != 0);
  }
  return absl::OkStatus();
}

// `rewards` is the reward of the completion, of which `token_rewards` may give each token its part;
// or a list, the rewards of the tokens.
absl::Status ReadRewards(const io::JsonFields& row, Sample& sample) {
  Segment& response = *sample.mutable_segments(1);
  const size_t num_tokens = response.token_ids_size();
  const bool is_list = row.json()["rewards"].is_array();
  if (is_list && row.Has("token_rewards")) {
    return row.Error("token_rewards", "expected none, because rewards is a list already");
  }
  std::vector<double> of_tokens;
  if (is_list || row.Has("token_rewards")) {
    ASSIGN_OR_RETURN(of_tokens, TokenList(row, is_list ? "rewards" : "token_rewards", num_tokens));
  }
  if (is_list) {
    sample.set_reward(std::accumulate(of_tokens.begin(), of_tokens.end(), 0.0));
  } else {
    ASSIGN_OR_RETURN(const double reward, row.Double("rewards"));
    sample.set_reward(reward);
  }
  response.mutable_token_rewards()->Add(of_tokens.begin(), of_tokens.end());
  return absl::OkStatus();
}

// Reads `scores`, what each of several rewards said, and `score_weights`, 1 where it says nothing.
absl::Status ReadRewardParts(const io::JsonFields& row, Sample& sample) {
  const json& scores = row.json()["scores"];
  const json weights = row.Has("score_weights") ? row.json()["score_weights"] : json::object();
  if (!scores.is_object()) return row.Error("scores", "expected an object, a number by name");
  if (!weights.is_object()) return row.Error("score_weights", "expected an object like scores");
  for (const auto& [name, score] : scores.items()) {
    const json weight = weights.value(name, json(1));
    if (!score.is_number() || !weight.is_number()) {
      return row.Error(score.is_number() ? "score_weights" : "scores",
                       absl::StrCat("expected a number for ", name, ", found ",
                                    (score.is_number() ? weight : score).dump()));
    }
    common::v1::RewardPart& part = *sample.add_reward_parts();
    part.set_name(name);
    part.set_value(score.get<double>());
    part.set_weight(weight.get<double>());
  }
  return absl::OkStatus();
}

absl::StatusOr<common::v1::SegmentKind> KindOf(const io::JsonFields& segment) {
  ASSIGN_OR_RETURN(const std::string kind, segment.String("kind"));
  if (kind == "prompt") return common::v1::SEGMENT_KIND_PROMPT;
  if (kind == "sampled") return common::v1::SEGMENT_KIND_SAMPLED;
  if (kind == "observation") return common::v1::SEGMENT_KIND_ENVIRONMENT;
  return segment.Error("kind",
                       absl::StrCat("expected prompt, sampled or observation, found ", kind));
}

// Reads the segments of an episode of several turns.
absl::Status ReadSegments(const io::JsonFields& row, const model::RoutedLayout* routed,
                          Sample& sample) {
  const json& list = row.json()["segments"];
  if (!list.is_array() || list.empty()) {
    return row.Error("segments", "expected a list of segments");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) {
      return row.Error("segments", absl::StrCat("[", i, "]: expected an object"));
    }
    const io::JsonFields segment(list[i], absl::StrCat(row.place(), ": segments[", i, "]"));
    ASSIGN_OR_RETURN(const common::v1::SegmentKind kind, KindOf(segment));
    RETURN_IF_ERROR(AddIds(segment, "ids", kind, sample));
    Segment& added = *sample.mutable_segments()->rbegin();
    RETURN_IF_ERROR(ReadExperts(segment, "routed_experts", routed, added));
    if (kind != common::v1::SEGMENT_KIND_SAMPLED) continue;
    const size_t num_tokens = added.token_ids_size();
    if (segment.Has("mask")) {
      RETURN_IF_ERROR(ReadMask(segment, "mask", added));
    }
    if (segment.Has("logprobs")) {
      ASSIGN_OR_RETURN(const auto values, NumberOrList(segment, "logprobs", num_tokens));
      added.mutable_logprobs()->Add(values.begin(), values.end());
    }
    if (segment.Has("token_rewards")) {
      ASSIGN_OR_RETURN(const auto values, TokenList(segment, "token_rewards", num_tokens));
      added.mutable_token_rewards()->Add(values.begin(), values.end());
    }
    RETURN_IF_ERROR(ReadTeacher(segment, added));
    RETURN_IF_ERROR(CheckVersions(segment, "versions"));
  }
  ASSIGN_OR_RETURN(const double reward, row.Double("rewards"));
  sample.set_reward(reward);
  return absl::OkStatus();
}

absl::Status ReadTurn(const io::JsonFields& row, const model::RoutedLayout* routed,
                      Sample& sample) {
  RETURN_IF_ERROR(AddIds(row, "prompt_ids", common::v1::SEGMENT_KIND_PROMPT, sample));
  RETURN_IF_ERROR(AddIds(row, "response_ids", common::v1::SEGMENT_KIND_SAMPLED, sample));
  RETURN_IF_ERROR(ReadExperts(row, "prompt_routed_experts", routed, *sample.mutable_segments(0)));
  Segment& response = *sample.mutable_segments(1);
  RETURN_IF_ERROR(ReadExperts(row, "routed_experts", routed, response));
  const size_t num_tokens = response.token_ids_size();
  if (row.Has("response_mask")) {
    RETURN_IF_ERROR(ReadMask(row, "response_mask", response));
  }
  if (row.Has("rewards")) {
    RETURN_IF_ERROR(ReadRewards(row, sample));
  } else if (row.Has("advantages")) {
    ASSIGN_OR_RETURN(const std::vector<double> values, NumberOrList(row, "advantages", num_tokens));
    response.mutable_advantages()->Add(values.begin(), values.end());
  } else {
    return row.Error("rewards", "expected rewards or advantages");
  }
  if (row.Has("logprobs")) {
    ASSIGN_OR_RETURN(const std::vector<double> values, NumberOrList(row, "logprobs", num_tokens));
    response.mutable_logprobs()->Add(values.begin(), values.end());
  }
  RETURN_IF_ERROR(ReadTeacher(row, response));
  return CheckVersions(row, "policy_versions");
}

bool IsSha256(const std::string& hex) {
  return hex.size() == 64 && std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit);
}

// Reads `images`, of the sample's first segment: {"path", "sha256"} each, or a path alone.
absl::Status ReadImages(const io::JsonFields& row, const std::string& folder, StepImages& known,
                        Sample& sample) {
  const json& list = row.json()["images"];
  if (!list.is_array()) return row.Error("images", "expected a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const auto error = [&row, i](absl::string_view problem) {
      return row.Error("images", absl::StrCat("[", i, "]: ", problem));
    };
    const json& entry = list[i];
    const json path = entry.is_object() ? entry.value("path", json()) : entry;
    const json hex = entry.is_object() ? entry.value("sha256", json()) : json();
    std::string digest;
    if (!hex.is_null()) {
      if (!hex.is_string() || !IsSha256(hex.get<std::string>())) {
        return error("sha256: expected 64 hexadecimal digits");
      }
      digest = absl::HexStringToBytes(hex.get<std::string>());
    }
    if (path.is_null()) {
      if (!known.contains(digest)) return error("expected a path: no line before has this image");
    } else if (!path.is_string()) {
      return error("expected a path or data URL, as text");
    } else if (digest.empty() || !known.contains(digest)) {
      absl::StatusOr<PromptImage> image = FindImage(path.get<std::string>(), folder);
      if (!image.ok()) return error(image.status().message());
      if (!digest.empty() && image->digest != digest) {
        return error("the file is not the one that was recorded: its SHA-256 differs");
      }
      digest = image->digest;
      known.try_emplace(digest, *std::move(image));
    }
    sample.mutable_segments(0)->add_image_digests(digest);
  }
  return absl::OkStatus();
}

absl::StatusOr<Sample> ReadSample(const io::JsonFields& row, const std::string& folder,
                                  const model::RoutedLayout* routed, StepImages& images) {
  Sample sample;
  sample.set_sample_id(row.place());
  if (row.Has("segments")) {
    RETURN_IF_ERROR(ReadSegments(row, routed, sample));
  } else {
    RETURN_IF_ERROR(ReadTurn(row, routed, sample));
  }
  if (routed != nullptr) {
    int64_t num_tokens = 0;
    for (const Segment& segment : sample.segments()) num_tokens += segment.token_ids_size();
    const absl::Status travels = routed->CheckLength(num_tokens);
    if (!travels.ok()) return row.Error("routed_experts", std::string(travels.message()));
  }
  if (row.Has("images")) {
    RETURN_IF_ERROR(ReadImages(row, folder, images, sample));
  }
  if (row.Has("scores")) {
    RETURN_IF_ERROR(ReadRewardParts(row, sample));
  }
  if (row.Has("baseline_reward")) {
    ASSIGN_OR_RETURN(const double baseline, row.Double("baseline_reward"));
    sample.set_baseline_reward(baseline);
  }
  if (row.Has("group")) {
    const json& group = row.json()["group"];
    sample.set_group_id(group.is_string() ? group.get<std::string>() : group.dump());
  } else {
    sample.set_group_id(row.place());
  }
  ASSIGN_OR_RETURN(const double temperature, row.DoubleOr("temperature", 1.0));
  sample.set_temperature(temperature);
  ASSIGN_OR_RETURN(const std::string reason, row.StringOr("finish_reason", "stop"));
  sample.set_finish_reason(reason == "length"      ? common::v1::FINISH_REASON_LENGTH
                           : reason == "max_turns" ? common::v1::FINISH_REASON_MAX_TURNS
                                                   : common::v1::FINISH_REASON_STOP);
  ASSIGN_OR_RETURN(const int64_t index, row.IntOr("index", 0));
  sample.set_index(static_cast<int32_t>(index));
  return sample;
}

// Appends samples to steps, sample after sample.
class StepBuilder {
 public:
  explicit StepBuilder(int64_t groups_per_step) : groups_per_step_(groups_per_step) {}

  absl::Status Add(const io::JsonFields& row, Sample sample) {
    std::optional<int64_t> step;
    if (row.Has("step")) {
      ASSIGN_OR_RETURN(step, row.Int("step"));
    }
    if (!steps_.empty() && step.has_value() != step_.has_value()) {
      return row.Error("step", "expected on every line or on none");
    }
    const bool begins_step = steps_.empty() || step != step_;
    const bool begins_group = begins_step || BeginsGroup(row, sample);
    const bool is_full = !step.has_value() && num_groups_ == groups_per_step_;
    if (begins_step || (begins_group && is_full)) {
      steps_.emplace_back();
      num_groups_ = 0;
    }
    if (begins_group) ++num_groups_;
    step_ = step;
    group_ = sample.group_id();
    has_index_ = row.Has("index");
    index_ = sample.index();
    // The same name again later in the step is another group.
    sample.set_group_id(absl::StrCat(steps_.size(), "/", num_groups_, "/", group_));
    steps_.back().push_back(std::move(sample));
    return absl::OkStatus();
  }

  std::vector<std::vector<Sample>> Take() { return std::move(steps_); }

 private:
  // Files of older releases name a group by its row of the data set, and neighbours may have the
  // same row: there the index, which counts up within a group, tells them apart.
  bool BeginsGroup(const io::JsonFields& row, const Sample& sample) const {
    return sample.group_id() != group_ ||
           (has_index_ && row.Has("index") && sample.index() <= index_);
  }

  const int64_t groups_per_step_;
  std::vector<std::vector<Sample>> steps_;
  int64_t num_groups_ = 0;  // of the last step
  // Of the last sample.
  std::optional<int64_t> step_;
  std::string group_;
  bool has_index_ = false;
  int32_t index_ = 0;
};

// The files of a recording: `path` itself, or N.jsonl of a folder, in ascending order of N.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::pair<int64_t, std::string>> found;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    int64_t step = 0;
    if (it->path().extension() == ".jsonl" && absl::SimpleAtoi(it->path().stem().string(), &step)) {
      found.emplace_back(step, it->path().string());
    }
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  if (found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected files STEP.jsonl, as in run_dir/rollouts; found none in the folder"));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> files;
  for (auto& [step, file] : found) files.push_back(std::move(file));
  return files;
}

}  // namespace

absl::StatusOr<Recording> ReadRecording(const std::string& path, int64_t groups_per_step,
                                        const model::RoutedLayout* routed) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(path));
  StepBuilder steps(groups_per_step);
  hash::Hasher digest;
  Recording out;
  for (const std::string& file : files) {
    const std::string folder = io::ParentFolder(file);
    RETURN_IF_ERROR(io::ForEachJsonLine(file, [&](const io::JsonFields& row) -> absl::Status {
      digest.Update(row.source());
      digest.Update("\n");
      ASSIGN_OR_RETURN(Sample sample, ReadSample(row, folder, routed, out.images));
      return steps.Add(row, std::move(sample));
    }));
  }
  out.steps = steps.Take();
  if (out.steps.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no samples"));
  out.file = {path, digest.Hex()};
  return out;
}

}  // namespace tandem::driver
