// The parser's view of the tokens.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_TOKEN_STREAM_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_TOKEN_STREAM_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/jinja/lexer.h"

namespace tandem::tokenizer::jinja::internal {

class TokenStream {
 public:
  // `tokens` ends with kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
  }
  const Token& Next() {
    const Token& token = Peek();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  int line() const { return Peek().line; }

  bool Is(Token::Kind kind) const { return Peek().kind == kind; }
  bool IsOperator(absl::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == Token::Kind::kOperator && Peek(ahead).text == text;
  }
  bool IsName(absl::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == Token::Kind::kName && Peek(ahead).text == text;
  }
  bool TakeOperator(absl::string_view text) {
    if (!IsOperator(text)) return false;
    Next();
    return true;
  }
  bool TakeName(absl::string_view text) {
    if (!IsName(text)) return false;
    Next();
    return true;
  }

  absl::Status Unexpected(absl::string_view expected) const {
    return ErrorAt(line(), absl::StrCat("expected ", expected, ", found ", Describe(Peek())));
  }
  absl::Status ExpectOperator(absl::string_view text) {
    if (TakeOperator(text)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", text, "'"));
  }

 private:
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kStatementEnd:
        return "'%}'";
      case Token::Kind::kOutputEnd:
        return "'}}'";
      case Token::Kind::kText:
      case Token::Kind::kStatementBegin:
      case Token::Kind::kOutputBegin:
        return "the end of the tag";
      case Token::Kind::kString:
        return absl::StrCat("the string '", token.text, "'");
      default:
        return absl::StrCat("'", token.text, "'");
    }
  }

  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_TOKEN_STREAM_H_
