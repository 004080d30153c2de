#include "common/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/onig_pattern.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMax = 16 << 20;
constexpr uint32_t kHeapLimitKib = 256 << 10;  // of the interpreter; PCRE2 would take 20 GB

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof(text)) < 0) return absl::StrCat("error ", code);
  return reinterpret_cast<const char*>(text);
}

// PCRE2's working memory for searches, one per thread.
class Scratch {
 public:
  Scratch()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    if (context_ == nullptr) return;
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    pcre2_set_heap_limit(context_, kHeapLimitKib);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
    pcre2_match_data_free(data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  pcre2_match_data* data() const { return data_; }
  pcre2_match_context* context() const { return context_; }

 private:
  pcre2_match_data* const data_;
  pcre2_match_context* const context_;
  pcre2_jit_stack* const stack_;
};

}  // namespace

struct Regex::Code {
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
  bool jit = false;
};

absl::StatusOr<Regex> Regex::Compile(absl::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern of ", pattern.size(), " bytes; at most ", kMaxPatternBytes));
  }
  RETURN_IF_ERROR(ValidateUtf8(pattern)) << "in a pattern";
  ASSIGN_OR_RETURN(const std::string translated, TranslateOnigPattern(pattern));
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for a pattern");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  auto code = std::make_shared<Code>();
  int error;
  PCRE2_SIZE offset;
  // Oniguruma's ^ and $ always match at line ends: multiline.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern '", pattern, "' does not compile: ", ErrorText(error), " (in '",
                     translated, "' at offset ", offset, ")"));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  Regex regex;
  regex.pattern_ = std::string(pattern);
  regex.code_ = std::move(code);
  return regex;
}

Regex Regex::Literal(absl::string_view literal) {
  Regex regex;
  regex.literal_ = std::string(literal);
  return regex;
}

template <typename Found>
absl::Status Regex::ForEachMatch(absl::string_view text, Found found) const {
  if (code_ == nullptr) {
    if (literal_.empty()) return absl::OkStatus();
    for (size_t at = text.find(literal_); at != absl::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      if (!found(Match{at, at + literal_.size()})) break;
    }
    return absl::OkStatus();
  }
  thread_local const Scratch scratch;
  if (scratch.data() == nullptr || scratch.context() == nullptr) {
    return absl::ResourceExhaustedError("no memory to search");
  }
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0;
  bool matched_before = false;
  size_t last_end = 0;
  while (at <= text.size()) {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_->jit) {
      rc = pcre2_jit_match(code_->code, subject, text.size(), at, 0, scratch.data(),
                           scratch.context());
    }
    // The interpreter keeps its state on the heap, within a limit of its own.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       scratch.data(), scratch.context());
    }
    if (rc == PCRE2_ERROR_NOMATCH) return absl::OkStatus();
    if (rc < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("pattern '", pattern_, "' failed at byte ",
                                                       at, " of ", text.size(), ": ", ErrorText(rc),
                                                       "; split the text"));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data());
    const Match match{ends[0], ends[1]};
    if (match.end < match.begin) {  // \K in a look-behind
      return absl::InvalidArgumentError(
          absl::StrCat("pattern '", pattern_, "' gives a match that ends before it begins"));
    }
    if (match.begin == match.end && matched_before && last_end == match.end) {
      size_t length = 1;
      if (at < text.size()) DecodeAt(text, at, &length);
      at += length;
      continue;
    }
    if (!found(match)) return absl::OkStatus();
    at = match.end;
    last_end = match.end;
    matched_before = true;
  }
  return absl::OkStatus();
}

absl::Status Regex::FindAll(absl::string_view text, std::vector<Match>* matches) const {
  return ForEachMatch(text, [matches](const Match& match) {
    matches->push_back(match);
    return true;
  });
}

absl::StatusOr<std::string> Regex::ReplaceAll(absl::string_view text, absl::string_view content,
                                              size_t max_bytes, bool* fits) const {
  std::string out;
  out.reserve(std::min(text.size(), max_bytes));
  size_t done = 0;
  const auto append = [&](absl::string_view part) {
    *fits = part.size() <= max_bytes - out.size();
    if (*fits) out.append(part.data(), part.size());
    return *fits;
  };
  *fits = true;
  RETURN_IF_ERROR(ForEachMatch(text, [&](const Match& match) {
    if (!append(text.substr(done, match.begin - done)) || !append(content)) return false;
    done = match.end;
    return true;
  }));
  if (*fits) append(text.substr(done));
  return out;
}

}  // namespace tandem::tokenizer
