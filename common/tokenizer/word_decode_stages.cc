#include "common/tokenizer/word_decode_stages.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer {
namespace {

// The reference's replacements, each over the whole token, one after the other.
std::string CleanUp(std::string token) {
  constexpr std::pair<absl::string_view, absl::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& rule : kRules) token = absl::StrReplaceAll(token, {rule});
  return token;
}

class WordPieceStage : public DecodeStage {
 public:
  WordPieceStage(const std::string& prefix, bool cleanup, DecodeStage* next)
      : prefix_(prefix), cleanup_(cleanup), next_(next) {}

  absl::Status Fragment(absl::string_view text) override {
    token_.append(text.data(), text.size());
    return absl::OkStatus();
  }
  absl::Status EndToken() override {
    std::string token = std::exchange(token_, std::string());
    if (!std::exchange(first_, false)) {
      if (absl::StartsWith(token, prefix_)) {
        token.erase(0, prefix_.size());
      } else {
        token.insert(0, " ");
      }
    }
    if (cleanup_) token = CleanUp(std::move(token));
    RETURN_IF_ERROR(next_->Fragment(token));
    return next_->EndToken();
  }
  absl::Status Finish() override { return next_->Finish(); }

 private:
  const std::string& prefix_;
  const bool cleanup_;
  DecodeStage* const next_;
  std::string token_;
  bool first_ = true;
};

class WordPieceStep : public DecodeStep {
 public:
  WordPieceStep(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  std::unique_ptr<DecodeStage> Start(const size_t*, DecodeStage* next) const override {
    return std::make_unique<WordPieceStage>(prefix_, cleanup_, next);
  }

 private:
  const std::string prefix_;
  const bool cleanup_;
};

class SuffixStage : public DecodeStage {
 public:
  SuffixStage(const std::string& suffix, DecodeStage* next) : suffix_(suffix), next_(next) {}

  absl::Status Fragment(absl::string_view text) override {
    token_.append(text.data(), text.size());
    return absl::OkStatus();
  }
  absl::Status EndToken() override {
    const std::string token = std::exchange(token_, std::string());
    RETURN_IF_ERROR(Release(" "));
    held_ = token;
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    RETURN_IF_ERROR(Release(""));
    return next_->Finish();
  }

 private:
  absl::Status Release(absl::string_view replacement) {
    if (!held_.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(next_->Fragment(absl::StrReplaceAll(*held_, {{suffix_, replacement}})));
    held_.reset();
    return next_->EndToken();
  }

  const std::string& suffix_;
  DecodeStage* const next_;
  std::string token_;
  std::optional<std::string> held_;
};

class SuffixStep : public DecodeStep {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<DecodeStage> Start(const size_t*, DecodeStage* next) const override {
    return std::make_unique<SuffixStage>(suffix_, next);
  }

 private:
  const std::string suffix_;
};

}  // namespace

std::unique_ptr<DecodeStep> MakeWordPieceStep(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceStep>(std::move(prefix), cleanup);
}

std::unique_ptr<DecodeStep> MakeSuffixStep(std::string suffix) {
  return std::make_unique<SuffixStep>(std::move(suffix));
}

}  // namespace tandem::tokenizer
