#include "tools/tandem/view/flat_sample.h"

#include <cstdint>
#include <string>
#include <utility>

namespace tandem::view {
namespace {

using nlohmann::json;

// The list at `key`, or an empty one.
json ListAt(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : json::array();
}

bool IsSpan(const json& span) {
  return span.is_array() && span.size() == 3 && span[0].is_number_integer() &&
         span[1].is_number_integer() && span[2].is_number_integer();
}

void AddSampled(const json& segment, size_t size, json& flat) {
  const auto begin = static_cast<int64_t>(flat["logprobs"].size());
  const json logprobs = ListAt(segment, "logprobs");
  const json rewards = ListAt(segment, "token_rewards");
  for (size_t i = 0; i < size; ++i) {
    flat["logprobs"].push_back(i < logprobs.size() ? logprobs[i] : json(nullptr));
    flat["token_rewards"].push_back(i < rewards.size() ? rewards[i] : json(0));
  }
  for (const json& span : ListAt(segment, "versions")) {
    if (!IsSpan(span)) continue;
    flat["policy_versions"].push_back(
        {span[0], span[1].get<int64_t>() + begin, span[2].get<int64_t>() + begin});
  }
  if (!rewards.empty()) flat["has_rewards"] = true;
}

}  // namespace

void FlattenSample(json& sample) {
  const json segments = ListAt(sample, "segments");
  if (segments.empty()) return;
  json flat = {{"prompt_ids", json::array()},
               {"response_ids", json::array()},
               {"logprobs", json::array()},
               {"policy_versions", json::array()},
               {"token_rewards", json::array()},
               {"observed", json::array()},
               {"has_rewards", false}};
  for (const json& segment : segments) {
    if (!segment.is_object()) continue;
    const json kind = segment.value("kind", json());
    const json ids = ListAt(segment, "ids");
    json& list = flat[kind == "prompt" ? "prompt_ids" : "response_ids"];
    for (const json& id : ids) list.push_back(id);
    if (kind == "prompt") continue;
    if (kind == "sampled") {
      AddSampled(segment, ids.size(), flat);
      continue;
    }
    const size_t begin = flat["logprobs"].size();
    for (size_t i = 0; i < ids.size(); ++i) {
      flat["logprobs"].push_back(nullptr);
      flat["token_rewards"].push_back(0);
    }
    flat["observed"].push_back({begin, begin + ids.size()});
  }
  const bool has_rewards = flat["has_rewards"];
  flat.erase("has_rewards");
  if (!has_rewards) flat.erase("token_rewards");
  sample.erase("segments");
  sample.update(flat);
}

}  // namespace tandem::view
