#include "common/tokenizer/decoder.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/decode_stages.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/unicode.h"
#include "common/tokenizer/word_decode_stages.h"

namespace tandem::tokenizer {
namespace {

absl::StatusOr<char32_t> ReadCharacter(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string text, node.String());
  if (CountCodePoints(text) != 1) {
    return node.Error(absl::StrCat("expected one character, found '", text, "'"));
  }
  size_t length;
  return DecodeAt(text, 0, &length);
}

absl::StatusOr<std::unique_ptr<DecodeStep>> ReadReplace(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Field("pattern"));
  ASSIGN_OR_RETURN(Regex pattern, ReadPattern(pattern_node));
  ASSIGN_OR_RETURN(const JsonNode content_node, node.Field("content"));
  ASSIGN_OR_RETURN(std::string content, content_node.String());
  return MakeReplaceStep(std::move(pattern), std::move(content));
}

absl::StatusOr<std::unique_ptr<DecodeStep>> ReadStrip(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode content_node, node.Field("content"));
  ASSIGN_OR_RETURN(const char32_t content, ReadCharacter(content_node));
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(const JsonNode start_node, node.Field("start"));
  ASSIGN_OR_RETURN(const int64_t start, start_node.Int(0, kMax));
  ASSIGN_OR_RETURN(const JsonNode stop_node, node.Field("stop"));
  ASSIGN_OR_RETURN(const int64_t stop, stop_node.Int(0, kMax));
  return MakeStripStep(content, static_cast<size_t>(start), static_cast<size_t>(stop));
}

absl::StatusOr<std::unique_ptr<DecodeStep>> ReadMetaspace(const JsonNode& node) {
  char32_t replacement = 0x2581;
  ASSIGN_OR_RETURN(const std::optional<JsonNode> replacement_node, node.Find("replacement"));
  if (replacement_node.has_value()) {
    ASSIGN_OR_RETURN(replacement, ReadCharacter(*replacement_node));
  }
  ASSIGN_OR_RETURN(const std::string scheme, node.StringOr("prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, node.BoolOr("add_prefix_space", true));
  return MakeMetaspaceStep(replacement,
                           scheme == "first" || (scheme != "never" && add_prefix_space));
}

absl::StatusOr<std::unique_ptr<DecodeStep>> ReadWordPiece(const JsonNode& node) {
  ASSIGN_OR_RETURN(std::string prefix, node.StringOr("prefix", "##"));
  ASSIGN_OR_RETURN(const bool cleanup, node.BoolOr("cleanup", true));
  return MakeWordPieceStep(std::move(prefix), cleanup);
}

absl::StatusOr<std::unique_ptr<DecodeStep>> ReadSuffix(const JsonNode& node) {
  ASSIGN_OR_RETURN(std::string suffix, node.StringOr("suffix", "</w>"));
  if (suffix.empty()) return node.Error("suffix is empty; expected the text that ends a word");
  return MakeSuffixStep(std::move(suffix));
}

}  // namespace

absl::Status Decoder::ReadInto(const JsonNode& node, int depth, Decoder* out) {
  if (depth > kMaxSequenceDepth) return node.Error("decoders nest too deeply");
  ASSIGN_OR_RETURN(const JsonNode type_node, node.Field("type"));
  ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type == "ByteLevel") {
    out->steps_.push_back(MakeByteLevelStep());
  } else if (type == "ByteFallback") {
    out->steps_.push_back(MakeByteFallbackStep());
  } else if (type == "Fuse") {
    out->steps_.push_back(MakeFuseStep());
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(auto step, ReadReplace(node));
    out->steps_.push_back(std::move(step));
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(auto step, ReadStrip(node));
    out->steps_.push_back(std::move(step));
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(auto step, ReadMetaspace(node));
    out->steps_.push_back(std::move(step));
  } else if (type == "WordPiece") {
    ASSIGN_OR_RETURN(auto step, ReadWordPiece(node));
    out->steps_.push_back(std::move(step));
  } else if (type == "BPEDecoder") {
    ASSIGN_OR_RETURN(auto step, ReadSuffix(node));
    out->steps_.push_back(std::move(step));
  } else if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonNode list, node.Field("decoders"));
    ASSIGN_OR_RETURN(const size_t count, list.ArraySize());
    constexpr size_t kMaxSteps = 64;
    if (count > kMaxSteps) return list.Error(absl::StrCat("more than ", kMaxSteps, " decoders"));
    for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(ReadInto(list.At(i), depth + 1, out));
  } else {
    return node.Unimplemented(absl::StrCat(
        "a decoder of type '", type,
        "' is not supported; ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece, "
        "BPEDecoder and Sequence are"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Decoder> Decoder::Read(const JsonNode& node) {
  Decoder out;
  RETURN_IF_ERROR(ReadInto(node, 0, &out));
  return out;
}

Decoder Decoder::Joining() {
  Decoder out;
  out.steps_.push_back(MakeJoinStep());
  return out;
}

// The end of the chain.
class DecodeStream::Output : public DecodeStage {
 public:
  absl::Status Fragment(absl::string_view text) override {
    text_.append(text.data(), text.size());
    return absl::OkStatus();
  }
  absl::Status EndToken() override { return absl::OkStatus(); }
  absl::Status Finish() override { return absl::OkStatus(); }
  std::string Take() { return std::exchange(text_, std::string()); }

 private:
  std::string text_;
};

DecodeStream::DecodeStream(const Decoder& decoder)
    : pushed_bytes_(std::make_unique<size_t>(0)), output_(std::make_unique<Output>()) {
  DecodeStage* next = output_.get();
  for (size_t i = decoder.steps().size(); i-- > 0;) {
    stages_.push_back(decoder.steps()[i]->Start(pushed_bytes_.get(), next));
    next = stages_.back().get();
  }
}

DecodeStream::~DecodeStream() = default;
DecodeStream::DecodeStream(DecodeStream&&) noexcept = default;
DecodeStream& DecodeStream::operator=(DecodeStream&&) noexcept = default;

absl::Status DecodeStream::Push(absl::string_view token) {
  *pushed_bytes_ += token.size();
  DecodeStage* first = stages_.empty() ? output_.get() : stages_.back().get();
  RETURN_IF_ERROR(first->Fragment(token));
  return first->EndToken();
}

absl::Status DecodeStream::Finish() {
  return stages_.empty() ? absl::OkStatus() : stages_.back()->Finish();
}

std::string DecodeStream::TakeText() { return output_->Take(); }

}  // namespace tandem::tokenizer
