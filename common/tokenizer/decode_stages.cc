#include "common/tokenizer/decode_stages.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/status/status_macros.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/growth.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class Step : public DecodeStep {
 public:
  using Make = std::function<std::unique_ptr<DecodeStage>(DecodeStage*)>;
  explicit Step(Make make) : make_(std::move(make)) {}
  std::unique_ptr<DecodeStage> Start(const size_t*, DecodeStage* next) const override {
    return make_(next);
  }

 private:
  const Make make_;
};

class ByteLevelStage : public DecodeStage {
 public:
  explicit ByteLevelStage(DecodeStage* next) : next_(next) {}

  absl::Status Fragment(absl::string_view text) override {
    token_.append(text.data(), text.size());
    return absl::OkStatus();
  }
  absl::Status EndToken() override {
    AppendFromByteLevel(token_, &bytes_);
    token_.clear();
    return Flush(false);
  }
  absl::Status Finish() override {
    RETURN_IF_ERROR(Flush(true));
    RETURN_IF_ERROR(next_->EndToken());
    return next_->Finish();
  }

 private:
  absl::Status Flush(bool last) {
    std::string text;
    absl::string_view rest = bytes_;
    while (!rest.empty()) {
      const size_t valid = ValidUtf8Prefix(rest);
      text.append(rest.data(), valid);
      rest.remove_prefix(valid);
      if (rest.empty()) break;
      bool incomplete;
      const size_t bad = IllFormedLength(rest, &incomplete);
      if (incomplete && !last) break;
      text.append(kReplacement.data(), kReplacement.size());
      rest.remove_prefix(bad);
    }
    bytes_ = std::string(rest);
    return text.empty() ? absl::OkStatus() : next_->Fragment(text);
  }

  DecodeStage* const next_;
  std::string token_;
  std::string bytes_;
};

class ByteFallbackStage : public DecodeStage {
 public:
  explicit ByteFallbackStage(DecodeStage* next) : next_(next) {}

  absl::Status Fragment(absl::string_view text) override {
    token_.append(text.data(), text.size());
    return absl::OkStatus();
  }
  absl::Status EndToken() override {
    const std::string token = std::exchange(token_, std::string());
    const int byte = ByteOf(token);
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(FlushRun());
    RETURN_IF_ERROR(next_->Fragment(token));
    return next_->EndToken();
  }
  absl::Status Finish() override {
    RETURN_IF_ERROR(FlushRun());
    return next_->Finish();
  }

 private:
  // The byte that "<0x..>" names, or -1.
  static int ByteOf(absl::string_view token) {
    if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
    // "+5" is a number to the reference's parser.
    if (token[3] == '+') return HexDigit(token[4]);
    const int high = HexDigit(token[3]), low = HexDigit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  static int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  absl::Status FlushRun() {
    if (run_.empty()) return absl::OkStatus();
    const std::string run = std::exchange(run_, std::string());
    if (ValidUtf8Prefix(run) == run.size()) {
      RETURN_IF_ERROR(next_->Fragment(run));
      return next_->EndToken();
    }
    for (size_t i = 0; i < run.size(); ++i) {
      RETURN_IF_ERROR(next_->Fragment(kReplacement));
      RETURN_IF_ERROR(next_->EndToken());
    }
    return absl::OkStatus();
  }

  DecodeStage* const next_;
  std::string token_;
  std::string run_;
};

class FuseStage : public DecodeStage {
 public:
  explicit FuseStage(DecodeStage* next) : next_(next) {}
  absl::Status Fragment(absl::string_view text) override { return next_->Fragment(text); }
  absl::Status EndToken() override { return absl::OkStatus(); }
  absl::Status Finish() override {
    RETURN_IF_ERROR(next_->EndToken());
    return next_->Finish();
  }

 private:
  DecodeStage* const next_;
};

class ReplaceStage : public DecodeStage {
 public:
  ReplaceStage(const Regex& pattern, const std::string& content, const size_t* pushed_bytes,
               DecodeStage* next)
      : pattern_(pattern), content_(content), pushed_bytes_(*pushed_bytes), next_(next) {}

  absl::Status Fragment(absl::string_view text) override {
    token_.append(text.data(), text.size());
    return absl::OkStatus();
  }
  absl::Status EndToken() override {
    const std::string token = std::exchange(token_, std::string());
    std::string out;
    if (!token.empty()) {
      // Each stage of a chain makes at most this from all tokens together.
      const size_t max_bytes = MaxBytesFrom(pushed_bytes_);
      const size_t left = max_bytes - std::min(max_bytes, made_bytes_);
      bool fits = true;
      ASSIGN_OR_RETURN(out, pattern_.ReplaceAll(token, content_, left, &fits));
      if (!fits) return TooMuchText("decoder Replace", max_bytes);
      made_bytes_ += out.size();
    }
    RETURN_IF_ERROR(next_->Fragment(out));
    return next_->EndToken();
  }
  absl::Status Finish() override { return next_->Finish(); }

 private:
  const Regex& pattern_;
  const std::string& content_;
  const size_t& pushed_bytes_;
  DecodeStage* const next_;
  std::string token_;
  size_t made_bytes_ = 0;
};

class ReplaceStep : public DecodeStep {
 public:
  ReplaceStep(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<DecodeStage> Start(const size_t* pushed_bytes, DecodeStage* next) const override {
    return std::make_unique<ReplaceStage>(pattern_, content_, pushed_bytes, next);
  }

 private:
  const Regex pattern_;
  const std::string content_;
};

class StripStage : public DecodeStage {
 public:
  StripStage(char32_t content, size_t start, size_t stop, DecodeStage* next)
      : start_(start), stop_(stop), next_(next) {
    AppendUtf8(content, &content_);
  }

  absl::Status Fragment(absl::string_view text) override {
    while (stripped_ < start_ && !text.empty()) {
      if (text.substr(0, content_.size()) != content_) {
        stripped_ = start_;
        break;
      }
      text.remove_prefix(content_.size());
      ++stripped_;
    }
    // Counts, and holds back, what may turn out to be the end of the token.
    size_t trailing = 0;
    absl::string_view kept = text;
    while (kept.size() >= content_.size() &&
           kept.substr(kept.size() - content_.size()) == content_) {
      kept.remove_suffix(content_.size());
      ++trailing;
    }
    if (!kept.empty()) {
      RETURN_IF_ERROR(Release(held_));
      RETURN_IF_ERROR(next_->Fragment(kept));
    }
    held_ += trailing;
    if (held_ > stop_) {
      RETURN_IF_ERROR(Release(held_ - stop_));
    }
    return absl::OkStatus();
  }
  absl::Status EndToken() override {
    stripped_ = 0;
    held_ = 0;  // at most stop_
    return next_->EndToken();
  }
  absl::Status Finish() override { return next_->Finish(); }

 private:
  absl::Status Release(size_t count) {
    if (count == 0) return absl::OkStatus();
    std::string text;
    for (size_t i = 0; i < count; ++i) text.append(content_);
    held_ -= count;
    return next_->Fragment(text);
  }

  std::string content_;
  const size_t start_, stop_;
  DecodeStage* const next_;
  size_t stripped_ = 0;
  size_t held_ = 0;
};

class MetaspaceStage : public DecodeStage {
 public:
  MetaspaceStage(char32_t replacement, bool drop_first, DecodeStage* next)
      : replacement_(replacement), drop_first_(drop_first), next_(next) {}

  absl::Status Fragment(absl::string_view text) override {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      size_t length;
      if (DecodeAt(text, i, &length) != replacement_) {
        out.append(text.data() + i, length);
      } else if (!first_ || !drop_first_) {
        out.push_back(' ');
      }
      i += length;
    }
    return next_->Fragment(out);
  }
  absl::Status EndToken() override {
    first_ = false;
    return next_->EndToken();
  }
  absl::Status Finish() override { return next_->Finish(); }

 private:
  const char32_t replacement_;
  const bool drop_first_;
  DecodeStage* const next_;
  bool first_ = true;
};

class JoinStage : public DecodeStage {
 public:
  explicit JoinStage(DecodeStage* next) : next_(next) {}
  absl::Status Fragment(absl::string_view text) override {
    RETURN_IF_ERROR(Separate());
    return next_->Fragment(text);
  }
  absl::Status EndToken() override {
    RETURN_IF_ERROR(Separate());
    in_token_ = false;
    return next_->EndToken();
  }
  absl::Status Finish() override { return next_->Finish(); }

 private:
  absl::Status Separate() {
    if (in_token_) return absl::OkStatus();
    in_token_ = true;
    if (std::exchange(any_, true)) return next_->Fragment(" ");
    return absl::OkStatus();
  }

  DecodeStage* const next_;
  bool in_token_ = false;
  bool any_ = false;
};

}  // namespace

std::unique_ptr<DecodeStep> MakeByteLevelStep() {
  return std::make_unique<Step>(
      [](DecodeStage* next) { return std::make_unique<ByteLevelStage>(next); });
}

std::unique_ptr<DecodeStep> MakeByteFallbackStep() {
  return std::make_unique<Step>(
      [](DecodeStage* next) { return std::make_unique<ByteFallbackStage>(next); });
}

std::unique_ptr<DecodeStep> MakeFuseStep() {
  return std::make_unique<Step>(
      [](DecodeStage* next) { return std::make_unique<FuseStage>(next); });
}

std::unique_ptr<DecodeStep> MakeReplaceStep(Regex pattern, std::string content) {
  return std::make_unique<ReplaceStep>(std::move(pattern), std::move(content));
}

std::unique_ptr<DecodeStep> MakeStripStep(char32_t content, size_t start, size_t stop) {
  return std::make_unique<Step>(
      [=](DecodeStage* next) { return std::make_unique<StripStage>(content, start, stop, next); });
}

std::unique_ptr<DecodeStep> MakeMetaspaceStep(char32_t replacement, bool drop_first) {
  return std::make_unique<Step>([=](DecodeStage* next) {
    return std::make_unique<MetaspaceStage>(replacement, drop_first, next);
  });
}

std::unique_ptr<DecodeStep> MakeJoinStep() {
  return std::make_unique<Step>(
      [](DecodeStage* next) { return std::make_unique<JoinStage>(next); });
}

}  // namespace tandem::tokenizer
