// The "post_processor" of tokenizer.json: adds special tokens around an encoded text.
#ifndef TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_
#define TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"

namespace tandem::tokenizer {

// Immutable after Read().
class PostProcessor {
 public:
  // Supports TemplateProcessing (its template for a single text), BertProcessing,
  // RobertaProcessing, ByteLevel (which changes offsets only) and Sequence; Unimplemented names
  // others.
  static absl::StatusOr<PostProcessor> Read(const JsonNode& node);

  // Returns `ids` with the special tokens added.
  std::vector<int32_t> Apply(std::vector<int32_t> ids) const;

 private:
  struct Part {
    bool is_text;
    std::vector<int32_t> ids;  // of a special token
  };
  using Template = std::vector<Part>;

  static absl::Status ReadInto(const JsonNode& node, int depth, PostProcessor* out);
  static absl::StatusOr<Template> ReadTemplate(const JsonNode& node);
  static absl::StatusOr<Part> ReadPair(const JsonNode& node);  // ["[SEP]", 102]

  std::vector<Template> templates_;  // applied one after the other
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_
