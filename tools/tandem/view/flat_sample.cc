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

// Adds what a segment says of its `size` tokens, and null and 0 where it says nothing. Returns whether
// it has rewards of tokens.
bool AddTokens(const json& segment, size_t size, json& flat) {
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
  return !rewards.empty();
}

}  // namespace

void FlattenSample(json& sample) {
  const json segments = ListAt(sample, "segments");
  if (segments.empty()) return;
  json flat = {{"prompt_ids", json::array()},    {"response_ids", json::array()},
               {"logprobs", json::array()},      {"policy_versions", json::array()},
               {"token_rewards", json::array()}, {"observed", json::array()}};
  json images = ListAt(sample, "images");
  bool has_rewards = false;
  for (const json& segment : segments) {
    if (!segment.is_object()) continue;
    for (const json& image : ListAt(segment, "images")) images.push_back(image);
    const json kind = segment.value("kind", json());
    const json ids = ListAt(segment, "ids");
    json& list = flat[kind == "prompt" ? "prompt_ids" : "response_ids"];
    for (const json& id : ids) list.push_back(id);
    if (kind == "prompt") continue;
    const bool is_sampled = kind == "sampled";
    const size_t begin = flat["logprobs"].size();
    has_rewards |= AddTokens(is_sampled ? segment : json::object(), ids.size(), flat);
    if (!is_sampled) flat["observed"].push_back({begin, begin + ids.size()});
  }
  if (!has_rewards) flat.erase("token_rewards");
  if (!images.empty()) flat["images"] = std::move(images);
  sample.erase("segments");
  sample.update(flat);
}

}  // namespace tandem::view
