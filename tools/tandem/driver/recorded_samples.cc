#include "tools/tandem/driver/recorded_samples.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/io/jsonl.h"
#include "common/rpc/policy_version.h"
#include "common/status/status_macros.h"

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

// Reads one number for the whole completion, or one per token.
absl::StatusOr<std::vector<double>> NumberOrList(const io::JsonFields& row, const std::string& key,
                                                 size_t num_tokens) {
  if (!row.json()[key].is_array()) {
    ASSIGN_OR_RETURN(const double value, row.Double(key));
    return std::vector<double>(num_tokens, value);
  }
  ASSIGN_OR_RETURN(std::vector<double> values, row.DoubleList(key));
  if (values.size() != num_tokens) {
    return row.Error(key, absl::StrCat("expected one number for each of the ", num_tokens,
                                       " response_ids, found ", values.size()));
  }
  return values;
}

// Checks versions of spans, [version, begin, end], or of tokens. Recorded samples train with any
// version, but an invalid version shows that the file is wrong.
absl::Status CheckVersions(const io::JsonFields& row) {
  if (!row.Has("policy_versions")) return absl::OkStatus();
  const json& list = row.json()["policy_versions"];
  if (!list.is_array()) return row.Error("policy_versions", "expected a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const json& entry = list[i];
    const json& version = entry.is_array() && !entry.empty() ? entry[0] : entry;
    // False for negative numbers.
    const bool is_version =
        version.is_number_unsigned() &&
        version.get<uint64_t>() <= static_cast<uint64_t>(rpc::kMaxPolicyVersion);
    if (!is_version) {
      return row.Error("policy_versions",
                       absl::StrCat("[", i, "]: expected a policy version, 0 to ",
                                    rpc::kMaxPolicyVersion, ", found ", version.dump()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Sample> ReadSample(const io::JsonFields& row) {
  Sample sample;
  sample.set_sample_id(row.place());
  RETURN_IF_ERROR(AddIds(row, "prompt_ids", common::v1::SEGMENT_KIND_PROMPT, sample));
  RETURN_IF_ERROR(AddIds(row, "response_ids", common::v1::SEGMENT_KIND_SAMPLED, sample));
  Segment& response = *sample.mutable_segments(1);
  const size_t num_tokens = response.token_ids_size();
  if (row.Has("response_mask")) {
    const json& mask = row.json()["response_mask"];
    if (!mask.is_array() || mask.size() != num_tokens) {
      return row.Error("response_mask", absl::StrCat("expected a list of ", num_tokens,
                                                     " entries, one for each of response_ids"));
    }
    for (const json& entry : mask) {
      response.add_loss_mask(entry.is_boolean() ? entry.get<bool>() : entry != 0);
    }
  }
  if (row.Has("rewards")) {
    ASSIGN_OR_RETURN(const std::vector<double> rewards, NumberOrList(row, "rewards", num_tokens));
    sample.set_reward(row.json()["rewards"].is_array()
                          ? std::accumulate(rewards.begin(), rewards.end(), 0.0)
                          : row.json()["rewards"].get<double>());
  } else if (row.Has("advantages")) {
    ASSIGN_OR_RETURN(const std::vector<double> values, NumberOrList(row, "advantages", num_tokens));
    response.mutable_advantages()->Add(values.begin(), values.end());
  } else {
    return row.Error("rewards", "expected rewards or advantages");
  }
  if (row.Has("baseline_reward")) {
    ASSIGN_OR_RETURN(const double baseline, row.Double("baseline_reward"));
    sample.set_baseline_reward(baseline);
  }
  if (row.Has("logprobs")) {
    ASSIGN_OR_RETURN(const std::vector<double> values, NumberOrList(row, "logprobs", num_tokens));
    response.mutable_logprobs()->Add(values.begin(), values.end());
  }
  RETURN_IF_ERROR(CheckVersions(row));
  if (row.Has("group")) {
    const json& group = row.json()["group"];
    sample.set_group_id(group.is_string() ? group.get<std::string>() : group.dump());
  } else {
    sample.set_group_id(row.place());
  }
  ASSIGN_OR_RETURN(const double temperature, row.DoubleOr("temperature", 1.0));
  sample.set_temperature(temperature);
  ASSIGN_OR_RETURN(const std::string reason, row.StringOr("finish_reason", "stop"));
  sample.set_finish_reason(reason == "length" ? common::v1::FINISH_REASON_LENGTH
                                              : common::v1::FINISH_REASON_STOP);
  return sample;
}

}  // namespace

absl::StatusOr<Recording> ReadRecording(const std::string& path, int64_t groups_per_step) {
  Recording out;
  std::vector<std::vector<Sample>>& steps = out.steps;
  hash::Hasher digest;
  std::string group;
  int64_t num_groups = 0;
  RETURN_IF_ERROR(io::ForEachJsonLine(path, [&](const io::JsonFields& row) -> absl::Status {
    digest.Update(row.source());
    digest.Update("\n");
    ASSIGN_OR_RETURN(Sample sample, ReadSample(row));
    if (steps.empty() || sample.group_id() != group) {
      group = sample.group_id();
      if (num_groups++ % groups_per_step == 0) steps.emplace_back();
    }
    // If the name appears again later in the file, it is another group.
    sample.set_group_id(absl::StrCat(num_groups, "/", group));
    steps.back().push_back(std::move(sample));
    return absl::OkStatus();
  }));
  if (steps.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no samples"));
  out.file = {path, digest.Hex()};
  return out;
}

}  // namespace tandem::driver
