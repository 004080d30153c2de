#include "common/tokenizer/normalizer.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/charsmap.h"
#include "common/tokenizer/text_cleaning.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

// Rewrites the text by a function; `name` is its type in tokenizer.json.
class TextRule : public Normalizer {
 public:
  using Function = std::function<std::string(absl::string_view)>;
  TextRule(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    *text = function_(*text);
    return text->size() <= max_bytes ? absl::OkStatus()
                                     : TooMuchText(absl::StrCat("normalizer ", name_), max_bytes);
  }

 private:
  const std::string name_;
  const Function function_;
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    ASSIGN_OR_RETURN(*text, map_.Normalize(*text, max_bytes));
    return absl::OkStatus();
  }

 private:
  const Charsmap map_;
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

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  absl::Status Rewrite(std::string* text, size_t max_bytes) const override {
    for (const auto& step : steps_) RETURN_IF_ERROR(step->Rewrite(text, max_bytes));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> steps_;
};

// The types without fields.
std::optional<TextRule::Function> FunctionOf(absl::string_view type) {
  const auto form = [](NormalizationForm f) {
    return [f](absl::string_view text) { return Normalize(text, f); };
  };
  if (type == "NFC") return form(NormalizationForm::kNfc);
  if (type == "NFD") return form(NormalizationForm::kNfd);
  if (type == "NFKC") return form(NormalizationForm::kNfkc);
  if (type == "NFKD") return form(NormalizationForm::kNfkd);
  if (type == "Lowercase") return Lowercase;
  if (type == "StripAccents") return StripAccents;
  if (type == "Nmt") return CleanNmt;
  if (type == "ByteLevel") {
    return [](absl::string_view text) {
      std::string out;
      AppendByteLevel(text, &out);
      return out;
    };
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<Normalizer>> ReadBert(const JsonNode& node) {
  BertCleaning options;
  ASSIGN_OR_RETURN(options.clean_text, node.BoolOr("clean_text", true));
  ASSIGN_OR_RETURN(options.handle_chinese_chars, node.BoolOr("handle_chinese_chars", true));
  ASSIGN_OR_RETURN(options.lowercase, node.BoolOr("lowercase", true));
  ASSIGN_OR_RETURN(options.strip_accents, node.BoolOr("strip_accents", options.lowercase));
  return std::make_unique<TextRule>(
      "BertNormalizer", [options](absl::string_view text) { return CleanBert(text, options); });
}

absl::StatusOr<std::unique_ptr<Normalizer>> ReadPrecompiled(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode blob_node, node.Field("precompiled_charsmap"));
  ASSIGN_OR_RETURN(const std::string encoded, blob_node.String());
  std::string blob;
  if (!absl::Base64Unescape(encoded, &blob)) return blob_node.Error("expected base64");
  ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(blob));
  return std::make_unique<Precompiled>(std::move(map));
}

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
  if (std::optional<TextRule::Function> function = FunctionOf(type)) {
    return std::make_unique<TextRule>(type, *std::move(function));
  }
  if (type == "BertNormalizer") return ReadBert(node);
  if (type == "Precompiled") return ReadPrecompiled(node);
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
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  return node.Unimplemented(absl::StrCat(
      "a normalizer of type '", type,
      "' is not supported; NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, "
      "BertNormalizer, Precompiled, Nmt, ByteLevel and Sequence are"));
}

}  // namespace tandem::tokenizer
