#include "common/tokenizer/jinja/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer::jinja::internal {
namespace {

using ExprKind = Expr::Kind;

bool IsComparison(const Token& token) {
  if (token.kind != Token::Kind::kOperator) return false;
  return token.text == "==" || token.text == "!=" || token.text == "<" || token.text == "<=" ||
         token.text == ">" || token.text == ">=";
}

}  // namespace

ExpressionParser::MutableExpr ExpressionParser::New(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExpressionParser::Result ExpressionParser::Finish(MutableExpr expr) {
  for (const ExprPtr& arg : expr->args) {
    if (arg != nullptr) expr->depth = std::max(expr->depth, arg->depth + 1);
  }
  for (const auto& [name, arg] : expr->named) expr->depth = std::max(expr->depth, arg->depth + 1);
  if (expr->depth > kMaxDepth) {
    return ErrorAt(expr->line, absl::StrCat("an expression nests deeper than ", kMaxDepth));
  }
  return ExprPtr(std::move(expr));
}

ExpressionParser::Result ExpressionParser::Binary(ExprKind kind, int line, std::string name,
                                                  ExprPtr left, ExprPtr right) const {
  MutableExpr expr = New(kind, line);
  expr->name = std::move(name);
  expr->args.push_back(std::move(left));
  expr->args.push_back(std::move(right));
  return Finish(std::move(expr));
}

absl::Status ExpressionParser::Enter() {
  if (nesting_ > kMaxDepth) {
    return ErrorAt(tokens_.line(), absl::StrCat("an expression nests deeper than ", kMaxDepth));
  }
  return absl::OkStatus();
}

ExpressionParser::Result ExpressionParser::Expression(bool conditional) {
  ++nesting_;
  struct Leave {
    int& nesting;
    ~Leave() { --nesting; }
  } leave{nesting_};
  RETURN_IF_ERROR(Enter());
  ASSIGN_OR_RETURN(ExprPtr expr, Or());
  while (conditional && tokens_.IsName("if")) {
    const int line = tokens_.Next().line;
    MutableExpr choice = New(ExprKind::kConditional, line);
    ASSIGN_OR_RETURN(ExprPtr condition, Or());
    choice->args.push_back(std::move(expr));
    choice->args.push_back(std::move(condition));
    choice->args.push_back(nullptr);
    if (tokens_.TakeName("else")) {
      ASSIGN_OR_RETURN(choice->args[2], Expression());
    }
    ASSIGN_OR_RETURN(expr, Finish(std::move(choice)));
  }
  return expr;
}

ExpressionParser::Result ExpressionParser::Tuple(bool conditional, absl::string_view end) {
  const int line = tokens_.line();
  const auto at_end = [&] {
    const Token::Kind kind = tokens_.Peek().kind;
    return kind == Token::Kind::kStatementEnd || kind == Token::Kind::kOutputEnd ||
           tokens_.IsOperator(")") || tokens_.IsOperator("=") ||
           (!end.empty() && tokens_.IsName(end));
  };
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  while (!at_end()) {
    ASSIGN_OR_RETURN(ExprPtr part, Expression(conditional));
    parts.push_back(std::move(part));
    if (!tokens_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (parts.empty()) return tokens_.Unexpected("an expression");
    return std::move(parts[0]);
  }
  MutableExpr tuple = New(ExprKind::kTuple, line);
  tuple->args = std::move(parts);
  return Finish(std::move(tuple));
}

ExpressionParser::Result ExpressionParser::Or() {
  ASSIGN_OR_RETURN(ExprPtr left, And());
  while (tokens_.IsName("or")) {
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr right, And());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kOr, line, "", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::And() {
  ASSIGN_OR_RETURN(ExprPtr left, Not());
  while (tokens_.IsName("and")) {
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr right, Not());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kAnd, line, "", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::Not() {
  // Counts instead of recursing: "not not not ..." may be long.
  std::vector<int> lines;
  while (tokens_.IsName("not")) lines.push_back(tokens_.Next().line);
  ASSIGN_OR_RETURN(ExprPtr expr, Comparison());
  for (; !lines.empty(); lines.pop_back()) {
    MutableExpr negation = New(ExprKind::kNot, lines.back());
    negation->args.push_back(std::move(expr));
    ASSIGN_OR_RETURN(expr, Finish(std::move(negation)));
  }
  return expr;
}

ExpressionParser::Result ExpressionParser::Comparison() {
  const int line = tokens_.line();
  ASSIGN_OR_RETURN(ExprPtr first, Sum());
  MutableExpr expr = New(ExprKind::kCompare, line);
  expr->args.push_back(std::move(first));
  while (true) {
    if (IsComparison(tokens_.Peek())) {
      expr->names.push_back(tokens_.Next().text);
    } else if (tokens_.TakeName("in")) {
      expr->names.push_back("in");
    } else if (tokens_.IsName("not") && tokens_.IsName("in", 1)) {
      tokens_.Next();
      tokens_.Next();
      expr->names.push_back("not in");
    } else {
      break;
    }
    ASSIGN_OR_RETURN(ExprPtr operand, Sum());
    expr->args.push_back(std::move(operand));
  }
  if (expr->names.empty()) return std::move(expr->args[0]);
  return Finish(std::move(expr));
}

ExpressionParser::Result ExpressionParser::Sum() {
  ASSIGN_OR_RETURN(ExprPtr left, Concat());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Token op = tokens_.Next();
    ASSIGN_OR_RETURN(ExprPtr right, Concat());
    ASSIGN_OR_RETURN(
        left, Binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::Concat() {
  const int line = tokens_.line();
  ASSIGN_OR_RETURN(ExprPtr first, Product());
  if (!tokens_.IsOperator("~")) return first;
  MutableExpr expr = New(ExprKind::kConcat, line);
  expr->args.push_back(std::move(first));
  while (tokens_.TakeOperator("~")) {
    ASSIGN_OR_RETURN(ExprPtr part, Product());
    expr->args.push_back(std::move(part));
  }
  return Finish(std::move(expr));
}

ExpressionParser::Result ExpressionParser::Product() {
  ASSIGN_OR_RETURN(ExprPtr left, Power());
  while (tokens_.IsOperator("*") || tokens_.IsOperator("/") || tokens_.IsOperator("//") ||
         tokens_.IsOperator("%")) {
    const Token op = tokens_.Next();
    ASSIGN_OR_RETURN(ExprPtr right, Power());
    ASSIGN_OR_RETURN(
        left, Binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::Power() {
  ASSIGN_OR_RETURN(ExprPtr left, Unary(true));
  while (tokens_.IsOperator("**")) {
    const int line = tokens_.Next().line;
    ASSIGN_OR_RETURN(ExprPtr right, Unary(true));
    ASSIGN_OR_RETURN(left,
                     Binary(ExprKind::kBinary, line, "**", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::Unary(bool with_filters) {
  std::vector<Token> signs;
  while (tokens_.IsOperator("-") || tokens_.IsOperator("+")) signs.push_back(tokens_.Next());
  ASSIGN_OR_RETURN(ExprPtr expr, Primary());
  ASSIGN_OR_RETURN(expr, Postfix(std::move(expr)));
  for (; !signs.empty(); signs.pop_back()) {
    MutableExpr sign = New(signs.back().text == "-" ? ExprKind::kNegative : ExprKind::kPositive,
                           signs.back().line);
    sign->args.push_back(std::move(expr));
    ASSIGN_OR_RETURN(expr, Finish(std::move(sign)));
  }
  // A filter applies after the signs: -1|abs is 1.
  if (with_filters) return Filters(std::move(expr));
  return expr;
}

ExpressionParser::Result ExpressionParser::Primary() {
  const Token token = tokens_.Peek();
  MutableExpr literal = New(ExprKind::kLiteral, token.line);
  switch (token.kind) {
    case Token::Kind::kName:
      tokens_.Next();
      if (token.text == "true" || token.text == "True") {
        literal->value = Value(true);
      } else if (token.text == "false" || token.text == "False") {
        literal->value = Value(false);
      } else if (token.text != "none" && token.text != "None") {
        literal->kind = ExprKind::kName;
        literal->name = token.text;
      }
      return Finish(std::move(literal));
    case Token::Kind::kString: {
      std::string text;
      while (tokens_.Is(Token::Kind::kString)) text += tokens_.Next().text;
      literal->value = Value(std::move(text));
      return Finish(std::move(literal));
    }
    case Token::Kind::kInteger: {
      tokens_.Next();
      const bool prefixed = token.text.size() > 1 && !absl::ascii_isdigit(token.text[1]);
      const char kind = prefixed ? token.text[1] : 'd';
      const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      const std::string digits = prefixed ? token.text.substr(2) : token.text;
      char* end = nullptr;
      errno = 0;
      const long long value = std::strtoll(digits.c_str(), &end, base);
      if (errno != 0 || end == digits.c_str() || *end != '\0') {
        return ErrorAt(token.line, absl::StrCat("'", token.text, "' is not an integer of 64 bits"));
      }
      literal->value = Value(static_cast<int64_t>(value));
      return Finish(std::move(literal));
    }
    case Token::Kind::kFloat:
      tokens_.Next();
      literal->value = Value(std::strtod(token.text.c_str(), nullptr));
      return Finish(std::move(literal));
    default:
      break;
  }
  if (tokens_.TakeOperator("(")) {
    ++nesting_;
    RETURN_IF_ERROR(Enter());
    if (tokens_.TakeOperator(")")) {
      --nesting_;
      return Finish(New(ExprKind::kTuple, token.line));
    }
    ASSIGN_OR_RETURN(ExprPtr inner, Tuple());
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    --nesting_;
    return inner;
  }
  if (tokens_.IsOperator("[")) return ListLiteral();
  if (tokens_.IsOperator("{")) return DictLiteral();
  return tokens_.Unexpected("an expression");
}

ExpressionParser::Result ExpressionParser::ListLiteral() {
  MutableExpr list = New(ExprKind::kList, tokens_.Next().line);
  while (!tokens_.TakeOperator("]")) {
    if (!list->args.empty()) {
      RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.TakeOperator("]")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr item, Expression());
    list->args.push_back(std::move(item));
  }
  return Finish(std::move(list));
}

ExpressionParser::Result ExpressionParser::DictLiteral() {
  MutableExpr dict = New(ExprKind::kDict, tokens_.Next().line);
  while (!tokens_.TakeOperator("}")) {
    if (!dict->args.empty()) {
      RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.TakeOperator("}")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr key, Expression());
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, Expression());
    dict->args.push_back(std::move(key));
    dict->args.push_back(std::move(value));
  }
  return Finish(std::move(dict));
}

ExpressionParser::Result ExpressionParser::Postfix(ExprPtr expr) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      const int line = tokens_.Next().line;
      const Token name = tokens_.Next();
      if (name.kind == Token::Kind::kInteger) {  // x.0
        MutableExpr index = New(ExprKind::kLiteral, line);
        index->value = Value(static_cast<int64_t>(std::strtoll(name.text.c_str(), nullptr, 10)));
        ASSIGN_OR_RETURN(ExprPtr key, Finish(std::move(index)));
        ASSIGN_OR_RETURN(expr, Binary(ExprKind::kItem, line, "", std::move(expr), std::move(key)));
        continue;
      }
      if (name.kind != Token::Kind::kName) return ErrorAt(line, "expected a name after '.'");
      MutableExpr attribute = New(ExprKind::kAttribute, line);
      attribute->name = name.text;
      attribute->args.push_back(std::move(expr));
      ASSIGN_OR_RETURN(expr, Finish(std::move(attribute)));
    } else if (tokens_.IsOperator("[")) {
      ASSIGN_OR_RETURN(expr, Subscript(std::move(expr)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(expr, Call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

ExpressionParser::Result ExpressionParser::Filters(ExprPtr expr) {
  while (true) {
    if (tokens_.TakeOperator("|")) {
      ASSIGN_OR_RETURN(expr, Filter(std::move(expr)));
    } else if (tokens_.TakeName("is")) {
      ASSIGN_OR_RETURN(expr, Test(std::move(expr)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(expr, Call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

ExpressionParser::Result ExpressionParser::FilterChain(ExprPtr subject) {
  ASSIGN_OR_RETURN(ExprPtr expr, Filter(std::move(subject)));
  while (tokens_.TakeOperator("|")) {
    ASSIGN_OR_RETURN(expr, Filter(std::move(expr)));
  }
  return expr;
}

ExpressionParser::Result ExpressionParser::Subscript(ExprPtr expr) {
  const int line = tokens_.Next().line;
  std::vector<ExprPtr> bounds(3);
  bool is_slice = false;
  size_t i = 0;
  while (!tokens_.IsOperator("]")) {
    if (tokens_.TakeOperator(":")) {
      is_slice = true;
      if (++i > 2) return ErrorAt(line, "a slice has at most three parts");
      continue;
    }
    if (bounds[i] != nullptr) return tokens_.Unexpected("']'");
    ASSIGN_OR_RETURN(bounds[i], Expression());
  }
  tokens_.Next();
  if (!is_slice) {
    if (bounds[0] == nullptr) return ErrorAt(line, "expected an expression between '[' and ']'");
    return Binary(ExprKind::kItem, line, "", std::move(expr), std::move(bounds[0]));
  }
  MutableExpr slice = New(ExprKind::kSlice, line);
  slice->args.push_back(std::move(expr));
  for (ExprPtr& bound : bounds) slice->args.push_back(std::move(bound));
  return Finish(std::move(slice));
}

absl::Status ExpressionParser::Arguments(Expr* call) {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  bool first = true;
  while (!tokens_.TakeOperator(")")) {
    if (!first) {
      RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.TakeOperator(")")) break;
    }
    first = false;
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      return absl::UnimplementedError(absl::StrCat("template line ", tokens_.line(),
                                                   ": arguments from a list or dictionary (*, **) "
                                                   "are not supported"));
    }
    if (tokens_.Is(Token::Kind::kName) && tokens_.IsOperator("=", 1)) {
      std::string name = tokens_.Next().text;
      tokens_.Next();
      ASSIGN_OR_RETURN(ExprPtr value, Expression());
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call->named.empty()) {
        return ErrorAt(tokens_.line(), "a positional argument after a named one");
      }
      ASSIGN_OR_RETURN(ExprPtr value, Expression());
      call->args.push_back(std::move(value));
    }
  }
  return absl::OkStatus();
}

ExpressionParser::Result ExpressionParser::Call(ExprPtr expr) {
  MutableExpr call = New(ExprKind::kCall, tokens_.line());
  call->args.push_back(std::move(expr));
  RETURN_IF_ERROR(Arguments(call.get()));
  return Finish(std::move(call));
}

ExpressionParser::Result ExpressionParser::Filter(ExprPtr expr) {
  const Token name = tokens_.Next();
  if (name.kind != Token::Kind::kName) return ErrorAt(name.line, "expected a filter's name");
  MutableExpr filter = New(ExprKind::kFilter, name.line);
  filter->name = name.text;
  filter->args.push_back(std::move(expr));
  if (tokens_.IsOperator("(")) {
    RETURN_IF_ERROR(Arguments(filter.get()));
  }
  return Finish(std::move(filter));
}

ExpressionParser::Result ExpressionParser::Test(ExprPtr expr) {
  const int line = tokens_.line();
  const bool negated = tokens_.TakeName("not");
  const Token name = tokens_.Next();
  if (name.kind != Token::Kind::kName) return ErrorAt(name.line, "expected a test's name");
  MutableExpr test = New(ExprKind::kTest, line);
  test->name = name.text;
  test->args.push_back(std::move(expr));
  const bool operand_follows =
      tokens_.Is(Token::Kind::kString) || tokens_.Is(Token::Kind::kInteger) ||
      tokens_.Is(Token::Kind::kFloat) || tokens_.IsOperator("[") || tokens_.IsOperator("{") ||
      (tokens_.Is(Token::Kind::kName) && !tokens_.IsName("else") && !tokens_.IsName("or") &&
       !tokens_.IsName("and") && !tokens_.IsName("is") && !tokens_.IsName("if") &&
       !tokens_.IsName("in") && !tokens_.IsName("not"));
  if (tokens_.IsOperator("(")) {
    RETURN_IF_ERROR(Arguments(test.get()));
  } else if (operand_follows) {
    ASSIGN_OR_RETURN(ExprPtr operand, Primary());
    ASSIGN_OR_RETURN(operand, Postfix(std::move(operand)));
    test->args.push_back(std::move(operand));
  }
  ASSIGN_OR_RETURN(ExprPtr out, Finish(std::move(test)));
  if (!negated) return out;
  MutableExpr negation = New(ExprKind::kNot, line);
  negation->args.push_back(std::move(out));
  return Finish(std::move(negation));
}

}  // namespace tandem::tokenizer::jinja::internal
