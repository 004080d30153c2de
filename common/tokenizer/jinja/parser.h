// Parses a template's source into its syntax tree.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_PARSER_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/jinja/ast.h"

namespace tandem::tokenizer::jinja::internal {

// InvalidArgument with the line of the error; Unimplemented for an unsupported statement. Trees are
// at most a few hundred nodes deep, so that walking them cannot exhaust the stack.
absl::StatusOr<Block> Parse(absl::string_view source);

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_PARSER_H_
