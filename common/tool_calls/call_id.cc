#include "common/tool_calls/call_id.h"

#include <random>

namespace tandem::tool_calls {

std::string NewCallId(const Format& format) {
  constexpr absl::string_view kCharacters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::random_device device;
  std::uniform_int_distribution<size_t> draw(0, kCharacters.size() - 1);
  std::string id = format.short_ids ? "" : "call_";
  const size_t size = id.size() + (format.short_ids ? 9 : 24);
  while (id.size() < size) id += kCharacters[draw(device)];
  return id;
}

}  // namespace tandem::tool_calls
