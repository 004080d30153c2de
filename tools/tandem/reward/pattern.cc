#include "tools/tandem/reward/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tandem::reward {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
// Items tried plus characters passed: about a second of work at most, and a thousand times what an
// ordinary pattern needs.
constexpr int64_t kMaxSearchWork = 50'000'000;
constexpr uint32_t kMaxHeapKibibytes = 64 << 10;

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) return absl::StrCat("error ", error);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Units(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

struct Work {
  int64_t done = 0;
  size_t position = 0;
};

// Called by PCRE2 before each item of the pattern; a positive result would only backtrack,
// a negative one ends the search.
int CountWork(pcre2_callout_block* block, void* data) {
  Work* work = static_cast<Work*>(data);
  const size_t now = block->current_position;
  work->done +=
      1 + static_cast<int64_t>(now > work->position ? now - work->position : work->position - now);
  work->position = now;
  return work->done > kMaxSearchWork ? PCRE2_ERROR_CALLOUT : 0;
}

}  // namespace

absl::StatusOr<Pattern> Pattern::Compile(const std::string& pattern, const std::string& field,
                                         uint32_t options) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": expected a pattern of at most ",
                                                   kMaxPatternBytes, " bytes, found ",
                                                   pattern.size()));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Callouts before every item count the work. PCRE2's own match limit restarts at each position
  // of the text, so it bounds nothing for a long one.
  pcre2_code* code =
      pcre2_compile(Units(pattern), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_AUTO_CALLOUT | options,
                    &error, &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": expected a PCRE2 pattern; at byte ", offset, ": ", ErrorText(error),
                     "; found \"", absl::Utf8SafeCHexEscape(pattern.substr(0, 80)), "\""));
  }
  return Pattern(Code(code, [](pcre2_code* c) { pcre2_code_free(c); }));
}

int Pattern::num_groups() const {
  uint32_t count = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_CAPTURECOUNT, &count);
  return static_cast<int>(count);
}

absl::StatusOr<Pattern::Match> Pattern::Search(const std::string& text) const {
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  // Two pairs of offsets: the match and group 1.
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(2, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  if (match == nullptr || context == nullptr) {
    return absl::ResourceExhaustedError("regex: no memory for a search");
  }
  Work work;
  pcre2_set_callout(context.get(), CountWork, &work);
  pcre2_set_heap_limit(context.get(), kMaxHeapKibibytes);
  const int found =
      pcre2_match(code_.get(), Units(text), text.size(), 0, 0, match.get(), context.get());
  // 0: a match with more groups than the two pairs of offsets hold. Negative: no match, or the
  // model's text reached a limit, which counts as no match.
  Match out;
  out.is_found = found >= 0;
  if (found == 0 || found > 1) {
    const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(match.get());
    if (offsets[2] != PCRE2_UNSET) out.group = text.substr(offsets[2], offsets[3] - offsets[2]);
  }
  return out;
}

}  // namespace tandem::reward
