// Parses the expressions inside tags by recursive descent, with the precedence and quirks of Jinja
// 3.1.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_EXPRESSION_PARSER_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_EXPRESSION_PARSER_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace tandem::tokenizer::jinja::internal {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  // Stops "x if y" before the if unless `conditional`.
  absl::StatusOr<ExprPtr> Expression(bool conditional = true);
  // Parses "a, b" as a tuple; a single expression as itself. Stops before the name `end`.
  absl::StatusOr<ExprPtr> Tuple(bool conditional = true, absl::string_view end = "");
  // Parses a chain of filters after `subject`, the first one without its '|'.
  absl::StatusOr<ExprPtr> FilterChain(ExprPtr subject);

 private:
  using MutableExpr = std::unique_ptr<Expr>;
  using Result = absl::StatusOr<ExprPtr>;

  MutableExpr New(Expr::Kind kind, int line) const;
  // Computes the depth from the arguments; fails beyond the limit.
  static Result Finish(MutableExpr expr);
  Result Binary(Expr::Kind kind, int line, std::string name, ExprPtr left, ExprPtr right) const;

  Result Or();
  Result And();
  Result Not();
  Result Comparison();
  Result Sum();
  Result Concat();
  Result Product();
  Result Power();
  Result Unary(bool with_filters);
  Result Primary();
  Result Postfix(ExprPtr expr);
  Result Filters(ExprPtr expr);
  Result Subscript(ExprPtr expr);
  Result Call(ExprPtr expr);
  Result Filter(ExprPtr expr);
  Result Test(ExprPtr expr);
  Result ListLiteral();
  Result DictLiteral();
  // Parses "(a, b, c=d)" with its parentheses and appends it to the call.
  absl::Status Arguments(Expr* call);
  absl::Status Enter();

  static constexpr int kMaxDepth = 200;

  TokenStream& tokens_;
  int nesting_ = 0;
};

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_EXPRESSION_PARSER_H_
