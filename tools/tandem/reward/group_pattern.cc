#include "tools/tandem/reward/group_pattern.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace tandem::reward {
namespace {

// Returns the position after the character class that opens at `at`.
size_t AfterClass(absl::string_view pattern, size_t at) {
  ++at;
  if (at < pattern.size() && pattern[at] == '^') ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // a literal ] as the first member
  while (at < pattern.size() && pattern[at] != ']') {
    if (pattern[at] == '\\') {
      at += 2;
    } else if (absl::StartsWith(pattern.substr(at), "[:")) {
      const size_t end = pattern.find(":]", at + 2);
      at = end == absl::string_view::npos ? at + 1 : end + 2;
    } else {
      ++at;
    }
  }
  return at + 1;
}

// What an opening parenthesis begins.
enum class Opening {
  kCapture,   // (...), (?<name>...), (?P<name>...), (?'name'...)
  kGroup,     // (?:...), (?>...), options such as (?i)
  kAround,    // (?=...), (?<!...), ...
  kElsewhere  // refers to other parts of the pattern, or changes how groups count
};

Opening OpeningOf(absl::string_view rest) {
  if (absl::StartsWith(rest, "(*")) return Opening::kElsewhere;
  if (!absl::StartsWith(rest, "(?")) return Opening::kCapture;
  for (const char* around : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (absl::StartsWith(rest, around)) return Opening::kAround;
  }
  for (const char* capture : {"(?<", "(?P<", "(?'"}) {
    if (absl::StartsWith(rest, capture)) return Opening::kCapture;
  }
  if (absl::StartsWith(rest, "(?:") || absl::StartsWith(rest, "(?>")) return Opening::kGroup;
  size_t at = 2;
  while (at < rest.size() && (absl::ascii_islower(rest[at]) || rest[at] == '-')) ++at;
  const bool is_options = at > 2 && at < rest.size() && (rest[at] == ':' || rest[at] == ')');
  const bool is_extended = absl::StrContains(rest.substr(0, at), 'x');
  return is_options && !is_extended ? Opening::kGroup : Opening::kElsewhere;
}

// Where the content of a capturing group begins.
size_t ContentOf(absl::string_view pattern, size_t at) {
  if (!absl::StartsWith(pattern.substr(at), "(?")) return at + 1;
  const char end = pattern[at + 2] == '\'' ? '\'' : '>';
  const size_t found = pattern.find(end, at + 3);
  return found == absl::string_view::npos ? pattern.size() : found + 1;
}

// An escape of a group that stands for itself wherever it is.
bool StandsAlone(char escaped) {
  return !absl::StrContains("bBGKgkQE", absl::string_view(&escaped, 1)) &&
         !absl::ascii_isdigit(escaped);
}

}  // namespace

std::optional<std::string> FirstGroupPattern(absl::string_view pattern) {
  size_t begin = absl::string_view::npos;
  size_t depth = 0;
  size_t outer = 0;  // the depth around group 1
  for (size_t at = 0; at < pattern.size();) {
    const bool is_within = begin != absl::string_view::npos;
    if (pattern[at] == '\\') {
      if (at + 1 == pattern.size()) return std::nullopt;
      const char escaped = pattern[at + 1];
      if (escaped == 'Q' || (is_within && !StandsAlone(escaped))) return std::nullopt;
      at += 2;
    } else if (pattern[at] == '[') {
      at = AfterClass(pattern, at);
    } else if (absl::StartsWith(pattern.substr(at), "(?#")) {
      at = pattern.find(')', at);
      if (at == absl::string_view::npos) return std::nullopt;
      ++at;
    } else if (pattern[at] == '(') {
      const Opening opening = OpeningOf(pattern.substr(at));
      if (opening == Opening::kElsewhere) return std::nullopt;
      if (opening == Opening::kAround && is_within) return std::nullopt;
      ++depth;
      if (opening == Opening::kCapture && !is_within) {
        outer = depth - 1;
        begin = at = ContentOf(pattern, at);
      } else {
        ++at;
      }
    } else if (pattern[at] == ')') {
      if (depth == 0) return std::nullopt;
      --depth;
      if (is_within && depth == outer) return std::string(pattern.substr(begin, at - begin));
      ++at;
    } else {
      ++at;
    }
  }
  return std::nullopt;
}

}  // namespace tandem::reward
