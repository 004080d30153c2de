#include "common/tokenizer/jinja/parser.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/expression_parser.h"
#include "common/tokenizer/jinja/lexer.h"
#include "common/tokenizer/jinja/token_stream.h"

namespace tandem::tokenizer::jinja::internal {
namespace {

using StmtKind = Stmt::Kind;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  absl::StatusOr<Block> Template() {
    std::string ended_by;
    return Statements({}, &ended_by, 0);
  }

 private:
  using StmtPtr = std::unique_ptr<const Stmt>;

  // Parses statements up to one of the tags `ends`, whose name it consumes and stores; without
  // `ends`, up to the end of the template.
  absl::StatusOr<Block> Statements(const std::vector<std::string>& ends, std::string* ended_by,
                                   int opened_at) {
    struct Leave {
      int& nesting;
      ~Leave() { --nesting; }
    } leave{++nesting_};
    if (nesting_ > kMaxNesting) {
      return ErrorAt(tokens_.line(), absl::StrCat("statements nest deeper than ", kMaxNesting));
    }
    Block block;
    while (true) {
      const Token token = tokens_.Next();
      switch (token.kind) {
        case Token::Kind::kEnd:
          if (ends.empty()) return block;
          return ErrorAt(opened_at,
                         absl::StrCat("expected '{% ", absl::StrJoin(ends, " %}' or '{% "),
                                      " %}' before the end of the template"));
        case Token::Kind::kText: {
          auto text = New(StmtKind::kText, token.line);
          text->text = token.text;
          block.statements.push_back(std::move(text));
          break;
        }
        case Token::Kind::kOutputBegin: {
          auto output = New(StmtKind::kOutput, token.line);
          ASSIGN_OR_RETURN(ExprPtr expr, expressions_.Tuple());
          output->exprs.push_back(std::move(expr));
          if (!tokens_.Is(Token::Kind::kOutputEnd)) return tokens_.Unexpected("'}}'");
          tokens_.Next();
          block.statements.push_back(std::move(output));
          break;
        }
        case Token::Kind::kStatementBegin: {
          const Token name = tokens_.Next();
          if (name.kind != Token::Kind::kName) return ErrorAt(name.line, "expected a statement");
          for (const std::string& end : ends) {
            if (name.text == end) {
              *ended_by = end;
              return block;
            }
          }
          ASSIGN_OR_RETURN(StmtPtr statement, Statement(name));
          block.statements.push_back(std::move(statement));
          break;
        }
        default:
          return ErrorAt(token.line, "unexpected token");
      }
    }
  }

  static std::unique_ptr<Stmt> New(StmtKind kind, int line) {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  absl::Status EndTag() {
    if (!tokens_.Is(Token::Kind::kStatementEnd)) return tokens_.Unexpected("'%}'");
    tokens_.Next();
    return absl::OkStatus();
  }

  absl::StatusOr<StmtPtr> Statement(const Token& name) {
    if (name.text == "if") return If(name.line);
    if (name.text == "for") return For(name.line);
    if (name.text == "set") return Set(name.line);
    if (name.text == "macro") return Macro(name.line);
    if (name.text == "call") return CallBlock(name.line);
    if (name.text == "filter") return FilterBlock(name.line);
    if (name.text == "with") return With(name.line);
    if (name.text == "generation") return Generation(name.line);
    if (name.text == "break" || name.text == "continue") {
      if (loops_ == 0) return ErrorAt(name.line, absl::StrCat(name.text, " outside of a loop"));
      auto statement =
          New(name.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, name.line);
      RETURN_IF_ERROR(EndTag());
      return statement;
    }
    for (absl::string_view known :
         {"include", "import", "from", "extends", "block", "autoescape", "do", "trans"}) {
      if (name.text == known) {
        return absl::UnimplementedError(absl::StrCat(
            "template line ", name.line, ": the statement '", known, "' is not supported"));
      }
    }
    return ErrorAt(name.line, absl::StrCat("unknown statement '", name.text, "'"));
  }

  // The body of a block statement, its end tag included.
  absl::StatusOr<Block> Body(const std::string& end, int line) {
    RETURN_IF_ERROR(EndTag());
    std::string ended_by;
    ASSIGN_OR_RETURN(Block block, Statements({end}, &ended_by, line));
    if (end == "endmacro" && tokens_.Is(Token::Kind::kName)) tokens_.Next();  // its name again
    RETURN_IF_ERROR(EndTag());
    return block;
  }

  absl::StatusOr<StmtPtr> If(int line) {
    auto statement = New(StmtKind::kIf, line);
    std::string ended_by = "elif";
    while (ended_by == "elif") {
      ASSIGN_OR_RETURN(ExprPtr condition, expressions_.Tuple(/*conditional=*/false));
      RETURN_IF_ERROR(EndTag());
      statement->exprs.push_back(std::move(condition));
      ASSIGN_OR_RETURN(Block block, Statements({"elif", "else", "endif"}, &ended_by, line));
      statement->blocks.push_back(std::move(block));
    }
    if (ended_by == "else") {
      ASSIGN_OR_RETURN(Block block, Body("endif", line));
      statement->blocks.push_back(std::move(block));
      return statement;
    }
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  absl::StatusOr<Target> OneTarget(bool with_attribute) {
    Target target;
    if (tokens_.TakeOperator("(")) {
      ASSIGN_OR_RETURN(target, Targets(with_attribute));
      RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return target;
    }
    if (!tokens_.Is(Token::Kind::kName)) return tokens_.Unexpected("a variable's name");
    target.name = tokens_.Next().text;
    if (with_attribute && tokens_.TakeOperator(".")) {
      if (!tokens_.Is(Token::Kind::kName)) return tokens_.Unexpected("an attribute's name");
      target.attribute = tokens_.Next().text;
    }
    return target;
  }

  // "a" or "a, b".
  absl::StatusOr<Target> Targets(bool with_attribute) {
    if (++target_nesting_ > kMaxNesting) {
      return ErrorAt(tokens_.line(), absl::StrCat("names nest deeper than ", kMaxNesting));
    }
    ASSIGN_OR_RETURN(Target first, OneTarget(with_attribute));
    if (tokens_.IsOperator(",")) {
      Target tuple;
      tuple.parts.push_back(std::move(first));
      while (tokens_.TakeOperator(",")) {
        if (!tokens_.Is(Token::Kind::kName) && !tokens_.IsOperator("(")) break;
        ASSIGN_OR_RETURN(Target part, OneTarget(with_attribute));
        tuple.parts.push_back(std::move(part));
      }
      first = std::move(tuple);
    }
    --target_nesting_;
    return first;
  }

  absl::StatusOr<StmtPtr> For(int line) {
    auto statement = New(StmtKind::kFor, line);
    ASSIGN_OR_RETURN(Target target, Targets(false));
    statement->targets.push_back(std::move(target));
    if (!tokens_.TakeName("in")) return tokens_.Unexpected("'in'");
    ASSIGN_OR_RETURN(ExprPtr items, expressions_.Tuple(/*conditional=*/false, "recursive"));
    statement->exprs.push_back(std::move(items));
    if (tokens_.TakeName("if")) {
      ASSIGN_OR_RETURN(ExprPtr condition, expressions_.Expression());
      statement->exprs.push_back(std::move(condition));
    }
    statement->recursive = tokens_.TakeName("recursive");
    RETURN_IF_ERROR(EndTag());
    std::string ended_by;
    ++loops_;
    ASSIGN_OR_RETURN(Block body, Statements({"endfor", "else"}, &ended_by, line));
    --loops_;
    statement->blocks.push_back(std::move(body));
    if (ended_by == "else") {
      ASSIGN_OR_RETURN(Block otherwise, Body("endfor", line));
      statement->blocks.push_back(std::move(otherwise));
      return statement;
    }
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  absl::StatusOr<StmtPtr> Set(int line) {
    auto statement = New(StmtKind::kSet, line);
    ASSIGN_OR_RETURN(Target target, Targets(true));
    statement->targets.push_back(std::move(target));
    if (tokens_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(ExprPtr value, expressions_.Tuple());
      statement->exprs.push_back(std::move(value));
      RETURN_IF_ERROR(EndTag());
      return statement;
    }
    statement->kind = StmtKind::kSetBlock;
    ASSIGN_OR_RETURN(ExprPtr chain, BlockText(line));
    if (tokens_.TakeOperator("|")) {
      ASSIGN_OR_RETURN(chain, expressions_.FilterChain(std::move(chain)));
    }
    statement->exprs.push_back(std::move(chain));
    ASSIGN_OR_RETURN(Block body, Body("endset", line));
    statement->blocks.push_back(std::move(body));
    return statement;
  }

  static absl::StatusOr<ExprPtr> BlockText(int line) {
    auto name = std::make_unique<Expr>();
    name->kind = Expr::Kind::kName;
    name->line = line;
    name->name = kBlockText;
    return ExprPtr(std::move(name));
  }

  absl::Status Parameters(Stmt* statement) {
    RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.TakeOperator(")")) {
      if (!statement->parameters.empty()) {
        RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      }
      if (!tokens_.Is(Token::Kind::kName)) return tokens_.Unexpected("a parameter's name");
      std::string name = tokens_.Next().text;
      ExprPtr otherwise;
      if (tokens_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(otherwise, expressions_.Expression());
      }
      statement->parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    return absl::OkStatus();
  }

  // Loops around a macro or call block do not apply in its body.
  absl::StatusOr<Block> FunctionBody(const std::string& end, int line) {
    const int outer = std::exchange(loops_, 0);
    absl::StatusOr<Block> body = Body(end, line);
    loops_ = outer;
    return body;
  }

  absl::StatusOr<StmtPtr> Macro(int line) {
    auto statement = New(StmtKind::kMacro, line);
    if (!tokens_.Is(Token::Kind::kName)) return tokens_.Unexpected("the macro's name");
    statement->name = tokens_.Next().text;
    RETURN_IF_ERROR(Parameters(statement.get()));
    ASSIGN_OR_RETURN(Block body, FunctionBody("endmacro", line));
    statement->blocks.push_back(std::move(body));
    return statement;
  }

  absl::StatusOr<StmtPtr> CallBlock(int line) {
    auto statement = New(StmtKind::kCall, line);
    if (tokens_.IsOperator("(")) {
      RETURN_IF_ERROR(Parameters(statement.get()));
    }
    ASSIGN_OR_RETURN(ExprPtr call, expressions_.Expression());
    if (call->kind != Expr::Kind::kCall) return ErrorAt(line, "expected a call");
    statement->exprs.push_back(std::move(call));
    ASSIGN_OR_RETURN(Block body, FunctionBody("endcall", line));
    statement->blocks.push_back(std::move(body));
    return statement;
  }

  absl::StatusOr<StmtPtr> FilterBlock(int line) {
    auto statement = New(StmtKind::kFilter, line);
    ASSIGN_OR_RETURN(ExprPtr chain, BlockText(line));
    ASSIGN_OR_RETURN(chain, expressions_.FilterChain(std::move(chain)));
    statement->exprs.push_back(std::move(chain));
    ASSIGN_OR_RETURN(Block body, Body("endfilter", line));
    statement->blocks.push_back(std::move(body));
    return statement;
  }

  absl::StatusOr<StmtPtr> With(int line) {
    auto statement = New(StmtKind::kWith, line);
    while (!tokens_.Is(Token::Kind::kStatementEnd)) {
      if (!statement->targets.empty()) {
        RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      }
      ASSIGN_OR_RETURN(Target target, OneTarget(false));
      RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
      statement->targets.push_back(std::move(target));
      statement->exprs.push_back(std::move(value));
    }
    ASSIGN_OR_RETURN(Block body, Body("endwith", line));
    statement->blocks.push_back(std::move(body));
    return statement;
  }

  absl::StatusOr<StmtPtr> Generation(int line) {
    auto statement = New(StmtKind::kScope, line);
    ASSIGN_OR_RETURN(Block body, Body("endgeneration", line));
    statement->blocks.push_back(std::move(body));
    return statement;
  }

  static constexpr int kMaxNesting = 100;

  TokenStream tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int target_nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<Block> Parse(absl::string_view source) {
  constexpr size_t kMaxSourceBytes = 4 << 20;
  if (source.size() > kMaxSourceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a template of ", source.size(), " bytes; at most ", kMaxSourceBytes));
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Template();
}

}  // namespace tandem::tokenizer::jinja::internal
