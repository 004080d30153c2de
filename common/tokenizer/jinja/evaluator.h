// Runs a parsed template.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_EVALUATOR_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_EVALUATOR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja::internal {

// Variables of a block; names not found here are looked up in the parent.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent) : parent(std::move(parent)) {}
  absl::flat_hash_map<std::string, Value> variables;
  const std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

// One rendering. Single-threaded; the tree must outlive it.
class Evaluator {
 public:
  Evaluator(const Limits& limits, absl::Time now) : runtime_(limits, now) {}
  ~Evaluator();

  // The template sees `variables` and the global functions.
  absl::StatusOr<std::string> Render(const Block& root, const Dict& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  absl::StatusOr<Flow> Run(const Block& block, const ScopePtr& scope);
  absl::StatusOr<Flow> Run(const Stmt& statement, const ScopePtr& scope);
  absl::StatusOr<Flow> RunUnguarded(const Stmt& statement, const ScopePtr& scope);
  absl::StatusOr<Flow> RunIf(const Stmt& statement, const ScopePtr& scope);
  absl::Status RunFor(const Stmt& statement, const ScopePtr& scope);
  absl::Status RunLoop(const Stmt& statement, const ScopePtr& scope, const Value& iterable,
                       int depth);
  absl::Status RunCall(const Stmt& statement, const ScopePtr& scope);
  absl::Status RunWith(const Stmt& statement, const ScopePtr& scope);
  absl::StatusOr<std::vector<Value>> LoopItems(const Stmt& statement, const ScopePtr& scope,
                                               const Value& iterable);
  // Returns the output of a block run in a scope of its own.
  absl::StatusOr<std::string> Capture(const Block& block, const ScopePtr& scope);
  absl::Status Write(absl::string_view text);
  absl::Status Assign(const Target& target, const Value& value, Scope* scope);
  absl::StatusOr<Value> MakeMacro(const Stmt& statement, const ScopePtr& scope);
  // Records a scope that a function holds, so that the destructor can clear it.
  absl::Status Hold(const ScopePtr& scope);
  absl::StatusOr<Value> CallMacro(const Stmt& statement, const ScopePtr& scope,
                                  Arguments& arguments);

  absl::StatusOr<Value> Eval(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalUnguarded(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalCall(const Expr& expr, const ScopePtr& scope, const Value* caller);
  absl::StatusOr<Value> EvalCompare(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalSlice(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalSign(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Arguments> EvalArguments(const Expr& expr, size_t first, const ScopePtr& scope);
  static Value Lookup(const std::string& name, const Scope* scope);

  Runtime runtime_;
  std::string output_;
  int depth_ = 0;       // of the walk over the tree
  int call_depth_ = 0;  // of macros
  // Scopes that macros hold. They form reference cycles, which the destructor breaks.
  std::vector<ScopePtr> captured_;
};

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_EVALUATOR_H_
