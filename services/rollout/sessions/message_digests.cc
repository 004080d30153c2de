#include "services/rollout/sessions/message_digests.h"

#include "common/hash/hasher.h"
#include "common/io/json_text.h"

namespace tandem::rollout {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json CallsOf(const ordered_json& message) {
  json out = json::array();
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return out;
  for (const ordered_json& call : *calls) {
    const ordered_json function = call.value("function", ordered_json::object());
    out.push_back({json(function.value("name", ordered_json())),
                   json(function.value("arguments", ordered_json()))});
  }
  return out;
}

// With its keys in one order, and without what may come or go.
json Canonical(const ordered_json& message) {
  const ordered_json role = message.value("role", ordered_json());
  json out;
  if (role == "assistant") {
    out["role"] = "assistant";
    out["calls"] = CallsOf(message);
    const ordered_json content = message.value("content", ordered_json());
    out["content"] = content.is_null() ? json("") : json(content);
    return out;
  }
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = json(value);
  }
  return out;
}

// Images of a content that is a list of parts.
size_t NumImages(const ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return 0;
  size_t count = 0;
  for (const ordered_json& part : *content) {
    if (part.is_object() && part.value("type", ordered_json()) == "image") ++count;
  }
  return count;
}

}  // namespace

std::vector<std::string> MessageDigests(const ordered_json& messages,
                                        const std::vector<std::string>& image_digests) {
  hash::Hasher hasher;
  std::vector<std::string> out;
  size_t next_image = 0;
  for (const ordered_json& message : messages) {
    hasher.Update(io::JsonText(Canonical(message)));
    for (size_t i = NumImages(message); i > 0 && next_image < image_digests.size(); --i) {
      hasher.Update(image_digests[next_image++]);
    }
    hasher.Update("\n");
    out.push_back(hasher.Hex());
  }
  return out;
}

}  // namespace tandem::rollout
