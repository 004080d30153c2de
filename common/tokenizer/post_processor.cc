#include "common/tokenizer/post_processor.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/normalizer.h"

namespace tandem::tokenizer {

absl::StatusOr<PostProcessor::Template> PostProcessor::ReadTemplate(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode single, node.Field("single"));
  ASSIGN_OR_RETURN(const JsonNode specials, node.Field("special_tokens"));
  ASSIGN_OR_RETURN(const size_t count, single.ArraySize());
  Template out;
  for (size_t i = 0; i < count; ++i) {
    const JsonNode piece = single.At(i);
    ASSIGN_OR_RETURN(const std::optional<JsonNode> sequence, piece.Find("Sequence"));
    if (sequence.has_value()) {
      ASSIGN_OR_RETURN(const JsonNode id_node, sequence->Field("id"));
      ASSIGN_OR_RETURN(const std::string id, id_node.String());
      if (id != "A") return id_node.Error(absl::StrCat("expected 'A', found '", id, "'"));
      out.push_back({true, {}});
      continue;
    }
    ASSIGN_OR_RETURN(const std::optional<JsonNode> special, piece.Find("SpecialToken"));
    if (!special.has_value()) return piece.Error("expected a \"Sequence\" or a \"SpecialToken\"");
    ASSIGN_OR_RETURN(const JsonNode id_node, special->Field("id"));
    ASSIGN_OR_RETURN(const std::string id, id_node.String());
    ASSIGN_OR_RETURN(const std::optional<JsonNode> token, specials.Find(id));
    if (!token.has_value()) {
      return id_node.Error(absl::StrCat("'", id, "' is not among the special_tokens"));
    }
    ASSIGN_OR_RETURN(const JsonNode ids, token->Field("ids"));
    ASSIGN_OR_RETURN(const size_t num_ids, ids.ArraySize());
    Part part{false, {}};
    for (size_t k = 0; k < num_ids; ++k) {
      ASSIGN_OR_RETURN(const int64_t value, ids.At(k).Int(0, std::numeric_limits<int32_t>::max()));
      part.ids.push_back(static_cast<int32_t>(value));
    }
    out.push_back(std::move(part));
  }
  return out;
}

absl::StatusOr<PostProcessor::Part> PostProcessor::ReadPair(const JsonNode& node) {
  ASSIGN_OR_RETURN(const size_t count, node.ArraySize());
  if (count != 2) return node.Error("expected [\"token\", id]");
  ASSIGN_OR_RETURN(const int64_t id, node.At(1).Int(0, std::numeric_limits<int32_t>::max()));
  return Part{false, {static_cast<int32_t>(id)}};
}

absl::Status PostProcessor::ReadInto(const JsonNode& node, int depth, PostProcessor* out) {
  if (depth > kMaxSequenceDepth) return node.Error("post-processors nest too deeply");
  ASSIGN_OR_RETURN(const JsonNode type_node, node.Field("type"));
  ASSIGN_OR_RETURN(const std::string type, type_node.String());
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") {
    ASSIGN_OR_RETURN(Template single, ReadTemplate(node));
    // Allows the text once: repeats would grow without bounds through a sequence.
    size_t texts = 0;
    for (const Part& part : single) texts += part.is_text ? 1 : 0;
    if (texts > 1) return node.Unimplemented("a template that repeats the text is not supported");
    out->templates_.push_back(std::move(single));
    return absl::OkStatus();
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(const JsonNode cls_node, node.Field("cls"));
    ASSIGN_OR_RETURN(const JsonNode sep_node, node.Field("sep"));
    ASSIGN_OR_RETURN(Part cls, ReadPair(cls_node));
    ASSIGN_OR_RETURN(Part sep, ReadPair(sep_node));
    out->templates_.push_back({std::move(cls), Part{true, {}}, std::move(sep)});
    return absl::OkStatus();
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const JsonNode list, node.Field("processors"));
    ASSIGN_OR_RETURN(const size_t count, list.ArraySize());
    for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(ReadInto(list.At(i), depth + 1, out));
    return absl::OkStatus();
  }
  return node.Unimplemented(absl::StrCat(
      "a post-processor of type '", type,
      "' is not supported; TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and "
      "Sequence are"));
}

absl::StatusOr<PostProcessor> PostProcessor::Read(const JsonNode& node) {
  PostProcessor out;
  RETURN_IF_ERROR(ReadInto(node, 0, &out));
  return out;
}

std::vector<int32_t> PostProcessor::Apply(std::vector<int32_t> ids) const {
  for (const Template& parts : templates_) {
    std::vector<int32_t> out;
    for (const Part& part : parts) {
      const std::vector<int32_t>& source = part.is_text ? ids : part.ids;
      out.insert(out.end(), source.begin(), source.end());
    }
    ids = std::move(out);
  }
  return ids;
}

}  // namespace tandem::tokenizer
