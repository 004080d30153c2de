// The syntax tree of a template.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_AST_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja::internal {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Expr {
  enum class Kind {
    kLiteral,      // value
    kName,         // name
    kList,         // args
    kTuple,        // args
    kDict,         // args: key, value, key, value, ...
    kAttribute,    // args[0] . name
    kItem,         // args[0] [ args[1] ]
    kSlice,        // args[0] [ args[1] : args[2] : args[3] ]; absent ones are null
    kCall,         // args[0] ( args[1:], named )
    kFilter,       // args[0] | name ( args[1:], named )
    kTest,         // args[0] is name ( args[1:], named )
    kNot,          // args[0]
    kNegative,     // args[0]
    kPositive,     // args[0]
    kBinary,       // args[0] name args[1]: + - * / // % **
    kCompare,      // args[0] names[0] args[1] names[1] args[2] ...
    kAnd,          // args[0] and args[1]
    kOr,           // args[0] or args[1]
    kConditional,  // args[0] if args[1] else args[2]; args[2] may be null
    kConcat,       // args[0] ~ args[1] ~ ...
  };

  Kind kind;
  int line = 0;
  std::string name;
  std::vector<std::string> names;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  int depth = 1;  // of the tree below
};

struct Stmt;

struct Block {
  std::vector<std::unique_ptr<const Stmt>> statements;
};

// The target of `for` and `set`.
struct Target {
  std::string name;       // empty: a tuple of parts
  std::string attribute;  // of a namespace, when not empty
  std::vector<Target> parts;
};

struct Stmt {
  enum class Kind {
    kText,      // text
    kOutput,    // exprs[0]
    kIf,        // exprs[i] -> blocks[i]; one more block is the else
    kFor,       // target in exprs[0] if exprs[1]: blocks[0], else blocks[1]
    kSet,       // target = exprs[0]
    kSetBlock,  // target = blocks[0] through the filters of exprs[0]
    kMacro,     // name (parameters): blocks[0]
    kCall,      // call (parameters) exprs[0]: blocks[0]
    kFilter,    // blocks[0] through the filters of exprs[0]
    kWith,      // targets = exprs: blocks[0]
    kScope,     // blocks[0]: generation
    kBreak,
    kContinue,
  };

  Kind kind;
  int line = 0;
  std::string text;
  std::string name;
  std::vector<Target> targets;
  std::vector<ExprPtr> exprs;
  std::vector<Block> blocks;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // name and default, which may be null
  bool recursive = false;
};

// The name that stands for a filter block's text in its chain of filters.
inline constexpr char kBlockText[] = " text";

}  // namespace tandem::tokenizer::jinja::internal

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_AST_H_
