// Calls of functions as a model writes them in its answer, and as OpenAI's API returns them.
#ifndef TANDEM_COMMON_TOOL_CALLS_TOOL_CALL_H_
#define TANDEM_COMMON_TOOL_CALLS_TOOL_CALL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::tool_calls {

struct ToolCall {
  std::string id;         // empty if the format has none
  std::string name;       // of the function
  std::string arguments;  // the text of a JSON object

  bool operator==(const ToolCall&) const = default;
};

// Text that looks like a call and is none. It stays in the content.
struct Problem {
  int64_t offset = 0;  // bytes from the start of the answer
  std::string what;

  bool operator==(const Problem&) const = default;
};

// JSON schemas of the functions' parameters, by function: formats whose arguments have no types of
// their own look them up.
using Schemas = std::map<std::string, nlohmann::ordered_json>;

// A call takes at most this many bytes, its marks included.
inline constexpr size_t kMaxCallBytes = size_t{1} << 20;
// Levels of objects and arrays in a call's JSON.
inline constexpr int kMaxCallDepth = 64;
// Calls in one answer.
inline constexpr int kMaxCalls = 128;
// Each malformed call is looked at twice: past so many of them, the rest of the answer is content.
inline constexpr int kMaxProblems = 32;
inline constexpr size_t kMaxNameBytes = 256;

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_TOOL_CALL_H_
