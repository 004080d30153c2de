// ParseJson: JSON out of files and from peers. nlohmann-json reads any depth, but copies, compares
// and writes by recursion, so that deep text would overflow the stack later, far from its source.
//
//   ASSIGN_OR_RETURN(const nlohmann::json row, io::ParseJson<nlohmann::json>(line));
#ifndef TANDEM_COMMON_IO_PARSE_JSON_H_
#define TANDEM_COMMON_IO_PARSE_JSON_H_

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

inline constexpr int kMaxJsonDepth = 256;

// INVALID_ARGUMENT where brackets of objects and arrays, those in strings aside, nest deeper than
// kMaxJsonDepth. Looks at nothing else.
absl::Status CheckJsonDepth(absl::string_view text);

// The first part of what nlohmann-json says of a text that it cannot read: of a string without an
// end it quotes all of it.
std::string JsonProblem(const std::exception& error);

// INVALID_ARGUMENT says what is wrong with text that is no JSON, nests too deeply, or holds bytes
// that are not UTF-8 or a number that no double holds.
template <typename Json>
absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (absl::Status depth = CheckJsonDepth(text); !depth.ok()) return depth;
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(JsonProblem(error));
  }
}

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_PARSE_JSON_H_
