// Splits a template's source into tokens and applies white space control.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_LEXER_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_LEXER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer::jinja::internal {

struct Token {
  enum class Kind {
    kText,  // between tags
    kStatementBegin,
    kStatementEnd,  // {% %}
    kOutputBegin,
    kOutputEnd,  // {{ }}
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  // a string's value; the digits of a number without '_'
  int line;
};

// Follows transformers' Jinja settings: trim_blocks and lstrip_blocks on, the last newline dropped.
// InvalidArgument with the line for an unterminated tag or an unexpected character.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

// InvalidArgument "template line N: message".
absl::Status ErrorAt(int line, absl::string_view message);

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_LEXER_H_
