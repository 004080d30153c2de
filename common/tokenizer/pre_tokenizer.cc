#include "common/tokenizer/pre_tokenizer.h"

#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/split.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr absl::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Rewrites every piece through `append(piece, is_first, &text)`.
template <typename Append>
absl::Status Rewrite(absl::string_view rule, Pieces* pieces, Append append) {
  Pieces out;
  out.starts_input = pieces->starts_input;
  out.max_bytes = pieces->max_bytes;
  out.pieces.reserve(pieces->pieces.size());
  out.text.reserve(pieces->text.size() + pieces->text.size() / 2);
  for (size_t i = 0; i < pieces->pieces.size(); ++i) {
    const size_t begin = out.text.size();
    append((*pieces)[i], i, &out.text);
    if (out.text.size() > out.max_bytes) return TooMuchText(rule, out.max_bytes);
    out.pieces.push_back({begin, out.text.size()});
  }
  *pieces = std::move(out);
  return absl::OkStatus();
}

// Splits each piece, as a text of its own, at the matches of a pattern.
class Split : public PreTokenizer {
 public:
  Split(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(Pieces* pieces) const override {
    std::vector<Match> out, matches;
    for (size_t i = 0; i < pieces->pieces.size(); ++i) {
      const Match piece = pieces->pieces[i];
      matches.clear();
      RETURN_IF_ERROR(pattern_.FindAll((*pieces)[i], &matches));
      for (Match& match : matches) {
        match.begin += piece.begin;
        match.end += piece.begin;
      }
      SplitRange(piece, matches, behavior_, invert_, &out);
    }
    pieces->pieces = std::move(out);
    return absl::OkStatus();
  }

 private:
  const Regex pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// Splits at each character that satisfies a predicate.
class CharacterSplit : public PreTokenizer {
 public:
  using Predicate = bool (*)(char32_t);
  CharacterSplit(Predicate predicate, SplitBehavior behavior)
      : predicate_(predicate), behavior_(behavior) {}

  absl::Status Apply(Pieces* pieces) const override {
    std::vector<Match> out, matches;
    for (const Match& piece : pieces->pieces) {
      matches.clear();
      for (size_t i = piece.begin; i < piece.end;) {
        size_t length;
        if (predicate_(DecodeAt(pieces->text, i, &length))) matches.push_back({i, i + length});
        i += length;
      }
      SplitRange(piece, matches, behavior_, false, &out);
    }
    pieces->pieces = std::move(out);
    return absl::OkStatus();
  }

 private:
  const Predicate predicate_;
  const SplitBehavior behavior_;
};

// Cuts into pieces of `length` characters.
class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}

  absl::Status Apply(Pieces* pieces) const override {
    std::vector<Match> out;
    for (const Match& piece : pieces->pieces) {
      size_t characters = 0, length;
      for (size_t i = piece.begin; i < piece.end; i += length, ++characters) {
        DecodeAt(pieces->text, i, &length);
        if (characters % length_ == 0) out.push_back({i, i});
        out.back().end = i + length;
      }
    }
    pieces->pieces = std::move(out);
    return absl::OkStatus();
  }

 private:
  const size_t length_;
};

// Runs of word characters and runs of what is neither word nor space: \w+|[^\w\s]+.
class Whitespace : public PreTokenizer {
 public:
  absl::Status Apply(Pieces* pieces) const override {
    enum Kind { kSpace, kWord, kOther };
    std::vector<Match> out;
    for (const Match& piece : pieces->pieces) {
      Kind previous = kSpace;
      for (size_t i = piece.begin; i < piece.end;) {
        size_t length;
        const char32_t c = DecodeAt(pieces->text, i, &length);
        const Kind kind = IsWord(c) ? kWord : IsWhitespace(c) ? kSpace : kOther;
        if (kind != kSpace) {
          if (kind == previous) {
            out.back().end = i + length;
          } else {
            out.push_back({i, i + length});
          }
        }
        previous = kind;
        i += length;
      }
    }
    pieces->pieces = std::move(out);
    return absl::OkStatus();
  }
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(std::unique_ptr<Split> split, bool add_prefix_space)
      : split_(std::move(split)), add_prefix_space_(add_prefix_space) {}

  absl::Status Apply(Pieces* pieces) const override {
    if (add_prefix_space_) {
      RETURN_IF_ERROR(Rewrite(kRule, pieces, [](absl::string_view piece, size_t, std::string* out) {
        if (!absl::StartsWith(piece, " ")) out->push_back(' ');
        out->append(piece.data(), piece.size());
      }));
    }
    if (split_ != nullptr) {
      RETURN_IF_ERROR(split_->Apply(pieces));
    }
    return Rewrite(kRule, pieces, [](absl::string_view piece, size_t, std::string* out) {
      AppendByteLevel(piece, out);
    });
  }

 private:
  static constexpr char kRule[] = "pre-tokenizer ByteLevel";
  const std::unique_ptr<Split> split_;  // null: use_regex is false
  const bool add_prefix_space_;
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  absl::Status Apply(Pieces* pieces) const override {
    const bool at_start =
        pieces->starts_input && !pieces->pieces.empty() && pieces->pieces.front().begin == 0;
    const auto replace = [&](absl::string_view piece, size_t i, std::string* out) {
      const bool has_prefix = absl::StartsWith(piece, " ") || absl::StartsWith(piece, replacement_);
      const bool wanted =
          prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && i == 0 && at_start);
      if (wanted && !has_prefix) out->append(replacement_);
      for (char c : piece) {
        if (c == ' ') {
          out->append(replacement_);
        } else {
          out->push_back(c);
        }
      }
    };
    RETURN_IF_ERROR(Rewrite("pre-tokenizer Metaspace", pieces, replace));
    if (!split_) return absl::OkStatus();
    return Split(Regex::Literal(replacement_), SplitBehavior::kMergedWithNext, false).Apply(pieces);
  }

 private:
  const std::string replacement_;
  const Prepend prepend_;
  const bool split_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  absl::Status Apply(Pieces* pieces) const override {
    for (const auto& step : steps_) RETURN_IF_ERROR(step->Apply(pieces));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

absl::StatusOr<std::unique_ptr<PreTokenizer>> ReadByteLevel(const JsonNode& node) {
  ASSIGN_OR_RETURN(const bool add_prefix_space, node.BoolOr("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, node.BoolOr("use_regex", true));
  std::unique_ptr<Split> split;
  if (use_regex) {
    ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kGpt2Pattern));
    split = std::make_unique<Split>(std::move(pattern), SplitBehavior::kIsolated, false);
  }
  return std::make_unique<ByteLevel>(std::move(split), add_prefix_space);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ReadSplit(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Field("pattern"));
  ASSIGN_OR_RETURN(Regex pattern, ReadPattern(pattern_node));
  ASSIGN_OR_RETURN(const JsonNode behavior_node, node.Field("behavior"));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadSplitBehavior(behavior_node));
  ASSIGN_OR_RETURN(const bool invert, node.BoolOr("invert", false));
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ReadMetaspaceSplit(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string replacement, node.StringOr("replacement", "\u2581"));
  if (CountCodePoints(replacement) != 1) {
    return node.Error(absl::StrCat("replacement '", replacement, "' is not one character"));
  }
  ASSIGN_OR_RETURN(const std::string scheme, node.StringOr("prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, node.BoolOr("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool split, node.BoolOr("split", true));
  Metaspace::Prepend prepend = Metaspace::Prepend::kAlways;
  if (scheme == "first") {
    prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "never" || !add_prefix_space) {
    prepend = Metaspace::Prepend::kNever;
  } else if (scheme != "always") {
    return node.Error(
        absl::StrCat("prepend_scheme '", scheme, "' is not one of always, first, never"));
  }
  return std::make_unique<Metaspace>(replacement, prepend, split);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreTokenizer>> ReadPreTokenizer(const JsonNode& node, int depth) {
  if (depth > kMaxSequenceDepth) return node.Error("pre-tokenizers nest too deeply");
  ASSIGN_OR_RETURN(const JsonNode type_node, node.Field("type"));
  ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type == "ByteLevel") return ReadByteLevel(node);
  if (type == "Split") return ReadSplit(node);
  if (type == "Metaspace") return ReadMetaspaceSplit(node);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterSplit>(IsWhitespace, SplitBehavior::kRemoved);
  }
  if (type == "BertPreTokenizer") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(std::make_unique<CharacterSplit>(IsWhitespace, SplitBehavior::kRemoved));
    steps.push_back(std::make_unique<CharacterSplit>(IsPunctuation, SplitBehavior::kIsolated));
    return std::make_unique<PreTokenizerSequence>(std::move(steps));
  }
  if (type == "CharDelimiterSplit") {
    ASSIGN_OR_RETURN(const JsonNode delimiter_node, node.Field("delimiter"));
    ASSIGN_OR_RETURN(const std::string delimiter, delimiter_node.String());
    if (CountCodePoints(delimiter) != 1) {
      return delimiter_node.Error(absl::StrCat("expected one character, found '", delimiter, "'"));
    }
    return std::make_unique<Split>(Regex::Literal(delimiter), SplitBehavior::kRemoved, false);
  }
  if (type == "FixedLength") {
    int64_t length = 5;
    ASSIGN_OR_RETURN(const std::optional<JsonNode> length_node, node.Find("length"));
    if (length_node.has_value()) {
      ASSIGN_OR_RETURN(length, length_node->Int(1, std::numeric_limits<int32_t>::max()));
    }
    return std::make_unique<FixedLength>(static_cast<size_t>(length));
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, node.BoolOr("individual_digits", false));
    return std::make_unique<CharacterSplit>(
        IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    ASSIGN_OR_RETURN(const std::optional<JsonNode> behavior_node, node.Find("behavior"));
    if (behavior_node.has_value()) {
      ASSIGN_OR_RETURN(behavior, ReadSplitBehavior(*behavior_node));
    }
    return std::make_unique<CharacterSplit>(IsPunctuation, behavior);
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonNode list, node.Field("pretokenizers"));
    ASSIGN_OR_RETURN(const size_t count, list.ArraySize());
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    for (size_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(auto step, ReadPreTokenizer(list.At(i), depth + 1));
      steps.push_back(std::move(step));
    }
    return std::make_unique<PreTokenizerSequence>(std::move(steps));
  }
  return node.Unimplemented(absl::StrCat(
      "a pre-tokenizer of type '", type,
      "' is not supported; ByteLevel, Split, Whitespace, WhitespaceSplit, Metaspace, Digits, "
      "Punctuation, BertPreTokenizer, CharDelimiterSplit, FixedLength and Sequence are"));
}

}  // namespace tandem::tokenizer
