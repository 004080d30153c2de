#include "common/tokenizer/jinja/evaluator.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/lexer.h"

namespace tandem::tokenizer::jinja::internal {
namespace {

// Limit on nested expressions and statements, macros included: bounds the stack.
constexpr int kMaxTreeDepth = 1200;

// Adds the line at the innermost place that knows it.
absl::Status WithLine(const absl::Status& status, int line) {
  if (absl::StartsWith(status.message(), "template line ")) return status;
  return absl::Status(status.code(), absl::StrCat("template line ", line, ": ", status.message()));
}

class DepthGuard {
 public:
  explicit DepthGuard(int* depth) : depth_(*depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace

Evaluator::~Evaluator() {
  for (const ScopePtr& captured : captured_) {
    for (Scope* scope = captured.get(); scope != nullptr; scope = scope->parent.get()) {
      scope->variables.clear();
    }
  }
}

absl::StatusOr<std::string> Evaluator::Render(const Block& root, const Dict& variables) {
  auto globals = std::make_shared<Scope>(nullptr);
  for (auto& [name, function] : GlobalFunctions()) globals->variables[name] = function;
  for (const auto& [name, value] : variables.items()) globals->variables[name.Str()] = value;
  const auto scope = std::make_shared<Scope>(globals);
  RETURN_IF_ERROR(Run(root, scope).status());
  return std::move(output_);
}

absl::Status Evaluator::Write(absl::string_view text) {
  if (static_cast<int64_t>(output_.size() + text.size()) > runtime_.limits().max_output_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the template writes more than ",
                                                     runtime_.limits().max_output_bytes, " bytes"));
  }
  RETURN_IF_ERROR(runtime_.Charge(static_cast<int64_t>(text.size())));
  output_.append(text.data(), text.size());
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Run(const Block& block, const ScopePtr& scope) {
  for (const auto& statement : block.statements) {
    ASSIGN_OR_RETURN(const Flow flow, Run(*statement, scope));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Run(const Stmt& statement, const ScopePtr& scope) {
  const DepthGuard guard(&depth_);
  absl::Status status = runtime_.Step();
  if (depth_ > kMaxTreeDepth)
    status = absl::ResourceExhaustedError("the template nests too deeply");
  if (!status.ok()) return WithLine(status, statement.line);
  absl::StatusOr<Flow> flow = RunUnguarded(statement, scope);
  if (!flow.ok()) return WithLine(flow.status(), statement.line);
  return flow;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunUnguarded(const Stmt& statement,
                                                        const ScopePtr& scope) {
  switch (statement.kind) {
    case Stmt::Kind::kText:
      RETURN_IF_ERROR(Write(statement.text));
      return Flow::kNext;
    case Stmt::Kind::kOutput: {
      ASSIGN_OR_RETURN(const Value value, Eval(*statement.exprs[0], scope));
      if (value.is_string()) {
        RETURN_IF_ERROR(Write(value.string()));
      } else {
        ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
        RETURN_IF_ERROR(Write(text));
      }
      return Flow::kNext;
    }
    case Stmt::Kind::kIf:
      return RunIf(statement, scope);
    case Stmt::Kind::kFor:
      RETURN_IF_ERROR(RunFor(statement, scope));
      return Flow::kNext;
    case Stmt::Kind::kSet: {
      ASSIGN_OR_RETURN(const Value value, Eval(*statement.exprs[0], scope));
      RETURN_IF_ERROR(Assign(statement.targets[0], value, scope.get()));
      return Flow::kNext;
    }
    case Stmt::Kind::kSetBlock:
    case Stmt::Kind::kFilter: {
      ASSIGN_OR_RETURN(std::string text, Capture(statement.blocks[0], scope));
      const auto inner = std::make_shared<Scope>(scope);
      inner->variables[kBlockText] = Value(std::move(text));
      ASSIGN_OR_RETURN(const Value value, Eval(*statement.exprs[0], inner));
      if (statement.kind == Stmt::Kind::kSetBlock) {
        RETURN_IF_ERROR(Assign(statement.targets[0], value, scope.get()));
      } else {
        ASSIGN_OR_RETURN(const std::string filtered, runtime_.ToText(value));
        RETURN_IF_ERROR(Write(filtered));
      }
      return Flow::kNext;
    }
    case Stmt::Kind::kMacro: {
      ASSIGN_OR_RETURN(Value macro, MakeMacro(statement, scope));
      scope->variables[statement.name] = std::move(macro);
      return Flow::kNext;
    }
    case Stmt::Kind::kCall:
      RETURN_IF_ERROR(RunCall(statement, scope));
      return Flow::kNext;
    case Stmt::Kind::kWith:
      RETURN_IF_ERROR(RunWith(statement, scope));
      return Flow::kNext;
    case Stmt::Kind::kScope:
      return Run(statement.blocks[0], std::make_shared<Scope>(scope));
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return absl::InternalError("unknown statement");
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunIf(const Stmt& statement, const ScopePtr& scope) {
  for (size_t i = 0; i < statement.exprs.size(); ++i) {
    ASSIGN_OR_RETURN(const Value condition, Eval(*statement.exprs[i], scope));
    if (condition.Truthy()) return Run(statement.blocks[i], scope);
  }
  if (statement.blocks.size() > statement.exprs.size()) return Run(statement.blocks.back(), scope);
  return Flow::kNext;
}

absl::Status Evaluator::RunFor(const Stmt& statement, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value iterable, Eval(*statement.exprs[0], scope));
  return RunLoop(statement, scope, iterable, 1);
}

absl::StatusOr<std::vector<Value>> Evaluator::LoopItems(const Stmt& statement,
                                                        const ScopePtr& scope,
                                                        const Value& iterable) {
  ASSIGN_OR_RETURN(const auto all, runtime_.Iterate(iterable));
  if (statement.exprs.size() < 2) return all->items;
  std::vector<Value> kept;
  for (const Value& item : all->items) {
    const auto inner = std::make_shared<Scope>(scope);
    RETURN_IF_ERROR(Assign(statement.targets[0], item, inner.get()));
    ASSIGN_OR_RETURN(const Value condition, Eval(*statement.exprs[1], inner));
    if (condition.Truthy()) kept.push_back(item);
  }
  return kept;
}

absl::Status Evaluator::RunLoop(const Stmt& statement, const ScopePtr& scope, const Value& iterable,
                                int depth) {
  ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(statement, scope, iterable));
  ASSIGN_OR_RETURN(const Value list, runtime_.MakeList(std::move(items)));
  auto loop = std::make_shared<Loop>();
  loop->items = list.list_pointer();
  loop->depth = depth;
  if (statement.recursive) {
    // loop(children) runs the same body over them and returns its output.
    RETURN_IF_ERROR(Hold(scope));
    auto recurse = std::make_shared<Callable>();
    recurse->name = "loop";
    recurse->call = [this, &statement, scope, depth](Runtime&,
                                                     Arguments& args) -> absl::StatusOr<Value> {
      ASSIGN_OR_RETURN(const auto bound, Bind("loop", args, {"iterable"}));
      const DepthGuard guard(&call_depth_);
      if (bound[0] == nullptr) return absl::InvalidArgumentError("loop() takes a sequence");
      if (call_depth_ > runtime_.limits().max_call_depth) {
        return absl::ResourceExhaustedError(
            absl::StrCat("loop() recurses more than ", runtime_.limits().max_call_depth, " deep"));
      }
      std::string outer = std::exchange(output_, std::string());
      const absl::Status status = RunLoop(statement, scope, *bound[0], depth + 1);
      std::string inner = std::exchange(output_, std::move(outer));
      RETURN_IF_ERROR(status);
      return Value(std::move(inner));
    };
    loop->recurse = std::move(recurse);
  }
  const size_t count = loop->items->items.size();
  for (loop->index = 0; loop->index < count; ++loop->index) {
    // Each iteration has its own variables: a set in one is not visible in the next.
    const auto inner = std::make_shared<Scope>(scope);
    inner->variables["loop"] = Value(loop);
    RETURN_IF_ERROR(Assign(statement.targets[0], loop->items->items[loop->index], inner.get()));
    ASSIGN_OR_RETURN(const Flow flow, Run(statement.blocks[0], inner));
    if (flow == Flow::kBreak) break;
  }
  if (count == 0 && statement.blocks.size() > 1) {
    RETURN_IF_ERROR(Run(statement.blocks[1], std::make_shared<Scope>(scope)).status());
  }
  return absl::OkStatus();
}

absl::Status Evaluator::RunCall(const Stmt& statement, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value caller, MakeMacro(statement, scope));
  ASSIGN_OR_RETURN(const Value value, EvalCall(*statement.exprs[0], scope, &caller));
  ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
  return Write(text);
}

absl::Status Evaluator::RunWith(const Stmt& statement, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    ASSIGN_OR_RETURN(const Value value, Eval(*statement.exprs[i], scope));
    RETURN_IF_ERROR(Assign(statement.targets[i], value, inner.get()));
  }
  return Run(statement.blocks[0], inner).status();
}

absl::StatusOr<std::string> Evaluator::Capture(const Block& block, const ScopePtr& scope) {
  std::string outer = std::exchange(output_, std::string());
  const absl::Status status = Run(block, std::make_shared<Scope>(scope)).status();
  std::string inner = std::exchange(output_, std::move(outer));
  RETURN_IF_ERROR(status);
  return inner;
}

absl::Status Evaluator::Assign(const Target& target, const Value& value, Scope* scope) {
  if (!target.parts.empty()) {
    ASSIGN_OR_RETURN(const auto items, runtime_.Iterate(value));
    if (items->items.size() != target.parts.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected ", target.parts.size(), " values to unpack, found ", items->items.size()));
    }
    for (size_t i = 0; i < target.parts.size(); ++i) {
      RETURN_IF_ERROR(Assign(target.parts[i], items->items[i], scope));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    scope->variables[target.name] = value;
    return absl::OkStatus();
  }
  const Value object = Lookup(target.name, scope);
  if (!object.is_namespace()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot assign attribute '", target.attribute, "' on '", target.name,
                     "': only a namespace has attributes that can be set"));
  }
  for (auto& [name, old_value] : object.ns().attributes) {
    if (name == target.attribute) {
      old_value = value;
      return absl::OkStatus();
    }
  }
  RETURN_IF_ERROR(runtime_.Charge(64));
  object.ns().attributes.emplace_back(target.attribute, value);
  return absl::OkStatus();
}

absl::Status Evaluator::Hold(const ScopePtr& scope) {
  constexpr int64_t kScopeBytes = 1024;
  if (!captured_.empty() && captured_.back() == scope) return absl::OkStatus();
  captured_.push_back(scope);
  return runtime_.Charge(kScopeBytes);
}

absl::StatusOr<Value> Evaluator::MakeMacro(const Stmt& statement, const ScopePtr& scope) {
  RETURN_IF_ERROR(Hold(scope));
  auto macro = std::make_shared<Callable>();
  macro->name = statement.name;
  macro->call = [this, &statement, scope](Runtime&, Arguments& arguments) {
    return CallMacro(statement, scope, arguments);
  };
  return Value(std::shared_ptr<const Callable>(std::move(macro)));
}

absl::StatusOr<Value> Evaluator::CallMacro(const Stmt& statement, const ScopePtr& scope,
                                           Arguments& arguments) {
  const DepthGuard guard(&call_depth_);
  if (call_depth_ > runtime_.limits().max_call_depth) {
    return absl::ResourceExhaustedError(absl::StrCat("macros call one another more than ",
                                                     runtime_.limits().max_call_depth, " deep"));
  }
  const auto inner = std::make_shared<Scope>(scope);
  std::vector<Value> rest;
  Dict named_rest;
  for (size_t i = statement.parameters.size(); i < arguments.positional.size(); ++i) {
    rest.push_back(arguments.positional[i]);
  }
  inner->variables["caller"] = Value::MakeUndefined("No caller defined");
  for (const auto& [name, value] : arguments.named) {
    bool known = name == "caller";
    for (const auto& [parameter, unused] : statement.parameters) known |= parameter == name;
    if (known) {
      inner->variables[name] = value;
    } else {
      named_rest.Set(Value(name), value);
    }
  }
  for (size_t i = 0; i < statement.parameters.size(); ++i) {
    const auto& [name, otherwise] = statement.parameters[i];
    if (i < arguments.positional.size()) {
      inner->variables[name] = arguments.positional[i];
    } else if (!inner->variables.contains(name)) {
      Value value = Value::MakeUndefined(absl::StrCat("parameter '", name, "' was not provided"));
      if (otherwise != nullptr) {
        ASSIGN_OR_RETURN(value, Eval(*otherwise, inner));
      }
      inner->variables[name] = std::move(value);
    }
  }
  ASSIGN_OR_RETURN(inner->variables["varargs"], runtime_.MakeList(std::move(rest), true));
  ASSIGN_OR_RETURN(inner->variables["kwargs"], runtime_.MakeDict(std::move(named_rest)));
  ASSIGN_OR_RETURN(std::string text, Capture(statement.blocks[0], inner));
  return Value(std::move(text));
}

Value Evaluator::Lookup(const std::string& name, const Scope* scope) {
  for (; scope != nullptr; scope = scope->parent.get()) {
    const auto it = scope->variables.find(name);
    if (it != scope->variables.end()) return it->second;
  }
  return Value::MakeUndefined(absl::StrCat("'", name, "' is undefined"));
}

absl::StatusOr<Value> Evaluator::Eval(const Expr& expr, const ScopePtr& scope) {
  const DepthGuard guard(&depth_);
  absl::Status status = runtime_.Step();
  if (depth_ > kMaxTreeDepth)
    status = absl::ResourceExhaustedError("the template nests too deeply");
  if (!status.ok()) return WithLine(status, expr.line);
  absl::StatusOr<Value> value = EvalUnguarded(expr, scope);
  if (!value.ok()) return WithLine(value.status(), expr.line);
  return value;
}

absl::StatusOr<Value> Evaluator::EvalUnguarded(const Expr& expr, const ScopePtr& scope) {
  const auto operand = [&](size_t i) { return Eval(*expr.args[i], scope); };
  switch (expr.kind) {
    case Expr::Kind::kLiteral:
      return expr.value;
    case Expr::Kind::kName:
      return Lookup(expr.name, scope.get());
    case Expr::Kind::kList:
    case Expr::Kind::kTuple: {
      ASSIGN_OR_RETURN(Arguments items, EvalArguments(expr, 0, scope));
      return runtime_.MakeList(std::move(items.positional), expr.kind == Expr::Kind::kTuple);
    }
    case Expr::Kind::kDict: {
      Dict dict;
      for (size_t i = 0; i < expr.args.size(); i += 2) {
        ASSIGN_OR_RETURN(const Value key, operand(i));
        ASSIGN_OR_RETURN(Value value, operand(i + 1));
        RETURN_IF_ERROR(runtime_.Charge(key.weight()));
        if (!dict.Set(key, std::move(value))) {
          return absl::InvalidArgumentError(
              absl::StrCat("unhashable type: '", key.TypeName(), "'"));
        }
      }
      return runtime_.MakeDict(std::move(dict));
    }
    case Expr::Kind::kAttribute: {
      ASSIGN_OR_RETURN(const Value object, operand(0));
      return runtime_.GetAttribute(object, expr.name);
    }
    case Expr::Kind::kItem: {
      ASSIGN_OR_RETURN(const Value object, operand(0));
      ASSIGN_OR_RETURN(const Value key, operand(1));
      return runtime_.GetItem(object, key);
    }
    case Expr::Kind::kSlice:
      return EvalSlice(expr, scope);
    case Expr::Kind::kCall:
      return EvalCall(expr, scope, nullptr);
    case Expr::Kind::kFilter: {
      ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expr, 0, scope));
      return runtime_.CallFilter(expr.name, arguments);
    }
    case Expr::Kind::kTest: {
      ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expr, 0, scope));
      ASSIGN_OR_RETURN(const bool passes, runtime_.CallTest(expr.name, arguments));
      return Value(passes);
    }
    case Expr::Kind::kNot: {
      ASSIGN_OR_RETURN(const Value value, operand(0));
      return Value(!value.Truthy());
    }
    case Expr::Kind::kNegative:
    case Expr::Kind::kPositive:
      return EvalSign(expr, scope);
    case Expr::Kind::kBinary: {
      ASSIGN_OR_RETURN(const Value left, operand(0));
      ASSIGN_OR_RETURN(const Value right, operand(1));
      return runtime_.Binary(expr.name, left, right);
    }
    case Expr::Kind::kCompare:
      return EvalCompare(expr, scope);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr: {
      ASSIGN_OR_RETURN(const Value left, operand(0));
      if (left.Truthy() != (expr.kind == Expr::Kind::kAnd)) return left;
      return operand(1);
    }
    case Expr::Kind::kConditional: {
      ASSIGN_OR_RETURN(const Value condition, operand(1));
      if (condition.Truthy()) return operand(0);
      if (expr.args[2] != nullptr) return operand(2);
      return Value::MakeUndefined(
          "the inline if-expression evaluated to false and no else section was defined");
    }
    case Expr::Kind::kConcat: {
      std::string out;
      for (size_t i = 0; i < expr.args.size(); ++i) {
        ASSIGN_OR_RETURN(const Value part, operand(i));
        ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(part));
        out.append(text);
      }
      return Value(std::move(out));
    }
  }
  return absl::InternalError("unknown expression");
}

absl::StatusOr<Arguments> Evaluator::EvalArguments(const Expr& expr, size_t first,
                                                   const ScopePtr& scope) {
  Arguments out;
  out.positional.reserve(expr.args.size() - first);
  for (size_t i = first; i < expr.args.size(); ++i) {
    ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i], scope));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : expr.named) {
    ASSIGN_OR_RETURN(Value value, Eval(*arg, scope));
    out.named.emplace_back(name, std::move(value));
  }
  return out;
}

absl::StatusOr<Value> Evaluator::EvalCall(const Expr& expr, const ScopePtr& scope,
                                          const Value* caller) {
  const Expr& callee = *expr.args[0];
  // Calls a method without making a function of it first.
  if (callee.kind == Expr::Kind::kAttribute && caller == nullptr) {
    ASSIGN_OR_RETURN(const Value object, Eval(*callee.args[0], scope));
    ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expr, 1, scope));
    if (HasMethod(object, callee.name)) return runtime_.CallMethod(object, callee.name, arguments);
    ASSIGN_OR_RETURN(const Value function, runtime_.GetAttribute(object, callee.name));
    return runtime_.Call(function, arguments);
  }
  ASSIGN_OR_RETURN(const Value function, Eval(callee, scope));
  ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expr, 1, scope));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return runtime_.Call(function, arguments);
}

absl::StatusOr<Value> Evaluator::EvalCompare(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.args[0], scope));
  for (size_t i = 0; i < expr.names.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Eval(*expr.args[i + 1], scope));
    ASSIGN_OR_RETURN(const bool holds, runtime_.CompareWith(expr.names[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Evaluator::EvalSlice(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value object, Eval(*expr.args[0], scope));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Eval(*expr.args[i + 1], scope));
  }
  return runtime_.GetSlice(object, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<Value> Evaluator::EvalSign(const Expr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.args[0], scope));
  if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_what());
  if (!value.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad operand type for unary sign: '", value.TypeName(), "'"));
  }
  const bool negative = expr.kind == Expr::Kind::kNegative;
  if (value.is_float()) return Value(negative ? -value.number() : value.number());
  return runtime_.Binary(negative ? "-" : "+", Value(0), value);
}

}  // namespace tandem::tokenizer::jinja::internal
