// A template's source as tokens, white space control applied.
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

// As transformers sets Jinja up: trim_blocks and lstrip_blocks on, the last newline dropped.
// InvalidArgument with the line for a tag that does not end or a character that belongs nowhere.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

// InvalidArgument "template line N: message".
absl::Status ErrorAt(int line, absl::string_view message);

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_LEXER_H_
