#include "common/tokenizer/normalizer.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalizationForm form) : form_(form) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    *text = Normalize(*text, form_);
    return text->size() <= max_bytes ? absl::OkStatus()
                                     : TooMuchText("normalizer's Unicode form", max_bytes);
  }

 private:
  const NormalizationForm form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    *text = Lowercase(*text);
    return text->size() <= max_bytes ? absl::OkStatus()
                                     : TooMuchText("normalizer Lowercase", max_bytes);
  }
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    size_t begin = 0, end = text->size(), length;
    while (left_ && begin < end && IsWhitespace(DecodeAt(*text, begin, &length))) begin += length;
    while (right_ && begin < end && IsWhitespace(DecodeBefore(*text, end, &length))) end -= length;
    *text = text->substr(begin, end - begin);
    return absl::OkStatus();
  }

 private:
  const bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    if (text->empty()) return absl::OkStatus();
    if (text->size() + prefix_.size() > max_bytes) {
      return TooMuchText("normalizer Prepend", max_bytes);
    }
    text->insert(0, prefix_);
    return absl::OkStatus();
  }

 private:
  const std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    if (text->empty()) return absl::OkStatus();
    bool fits = true;
    ASSIGN_OR_RETURN(*text, pattern_.ReplaceAll(*text, content_, max_bytes, &fits));
    return fits ? absl::OkStatus() : TooMuchText("normalizer Replace", max_bytes);
  }

 private:
  const Regex pattern_;
  const std::string content_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    for (const auto& step : steps_) RETURN_IF_ERROR(step->Rewrite(text, max_bytes));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

absl::StatusOr<Regex> ReadPattern(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::optional<JsonNode> literal, node.Find("String"));
  if (literal.has_value()) {
    ASSIGN_OR_RETURN(const std::string text, literal->String());
    // An empty pattern matches between all characters; only a compiled one does that.
    if (text.empty()) return Regex::Compile("");
    return Regex::Literal(text);
  }
  ASSIGN_OR_RETURN(const std::optional<JsonNode> pattern, node.Find("Regex"));
  if (!pattern.has_value()) return node.Error("expected a \"String\" or a \"Regex\"");
  ASSIGN_OR_RETURN(const std::string text, pattern->String());
  absl::StatusOr<Regex> regex = Regex::Compile(text);
  if (!regex.ok()) {
    return absl::Status(regex.status().code(),
                        absl::StrCat(pattern->Place(), ": ", regex.status().message()));
  }
  return regex;
}

absl::StatusOr<std::unique_ptr<Normalizer>> ReadNormalizer(const JsonNode& node, int depth) {
  if (depth > kMaxSequenceDepth) return node.Error("normalizers nest too deeply");
  ASSIGN_OR_RETURN(const JsonNode type_node, node.Field("type"));
  ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalizationForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalizationForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalizationForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalizationForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, node.BoolOr("strip_left", true));
    ASSIGN_OR_RETURN(const bool right, node.BoolOr("strip_right", true));
    return std::make_unique<StripNormalizer>(left, right);
  }
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(const JsonNode prefix, node.Field("prepend"));
    ASSIGN_OR_RETURN(std::string text, prefix.String());
    return std::make_unique<Prepend>(std::move(text));
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Field("pattern"));
    ASSIGN_OR_RETURN(Regex pattern, ReadPattern(pattern_node));
    ASSIGN_OR_RETURN(const JsonNode content_node, node.Field("content"));
    ASSIGN_OR_RETURN(std::string content, content_node.String());
    return std::make_unique<Replace>(std::move(pattern), std::move(content));
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonNode list, node.Field("normalizers"));
    ASSIGN_OR_RETURN(const size_t count, list.ArraySize());
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (size_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(auto step, ReadNormalizer(list.At(i), depth + 1));
      steps.push_back(std::move(step));
    }
    return std::make_unique<Sequence>(std::move(steps));
  }
  return node.Unimplemented(absl::StrCat("a normalizer of type '", type,
                                         "' is not supported; NFC, NFD, NFKC, NFKD, Lowercase, "
                                         "Strip, Prepend, Replace and Sequence are"));
}

}  // namespace tandem::tokenizer
