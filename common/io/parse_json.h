// ParseJson: parses JSON from files and peers. nlohmann-json parses any depth, but copies, compares
// and serializes recursively, so deep text would overflow the stack later, far from its source.
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

// INVALID_ARGUMENT if objects and arrays nest deeper than kMaxJsonDepth; ignores brackets in
// strings and checks nothing else.
absl::Status CheckJsonDepth(absl::string_view text);

// Returns the first part of nlohmann-json's parse error, which quotes all of an unterminated
// string.
std::string JsonProblem(const std::exception& error);

// INVALID_ARGUMENT, with the reason, for text that is no JSON, nests too deeply, is not UTF-8, or
// has a number that no double holds.
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
