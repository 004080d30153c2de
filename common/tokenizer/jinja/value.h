// The values of a template: Python's, as far as chat templates need them.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_VALUE_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_VALUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer::jinja {

class Value;
class Runtime;

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;       // nesting of lists and dictionaries
  int64_t weight = 1;  // see Value::weight()
};

// Keeps insertion order. Keys are values that Python can hash.
class Dict {
 public:
  // Sets or replaces; false when the key cannot be hashed.
  bool Set(const Value& key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(absl::string_view key) const;
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int depth() const { return depth_; }
  int64_t weight() const { return weight_; }

 private:
  static std::optional<std::string> HashKey(const Value& key);

  std::vector<std::pair<Value, Value>> items_;
  absl::flat_hash_map<std::string, size_t> index_;
  int depth_ = 1;
  int64_t weight_ = 1;
};

// The result of namespace(): the only thing that a template can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  int depth = 0;  // of the value that it holds
  std::function<absl::StatusOr<Value>(Runtime&, Arguments&)> call;
};

// The `loop` of a for statement.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
  int depth = 1;
  std::optional<std::string> changed;       // what changed() was last called with, as text
  std::shared_ptr<const Callable> recurse;  // null unless the loop is recursive
};

struct Undefined {
  std::shared_ptr<const std::string> what;  // "'x' is undefined"
};
struct None {};

// Immutable except for namespaces and loops; cheap to copy.
class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool v) : data_(v) {}          // NOLINT: values are written as they are
  Value(int64_t v) : data_(v) {}       // NOLINT
  Value(int v) : data_(int64_t{v}) {}  // NOLINT
  Value(double v) : data_(v) {}        // NOLINT
  Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}  // NOLINT
  Value(absl::string_view v) : Value(std::string(v)) {}                               // NOLINT
  Value(const char* v) : Value(std::string(v)) {}                                     // NOLINT
  Value(std::shared_ptr<const List> v) : data_(std::move(v)) {}                       // NOLINT
  Value(std::shared_ptr<const Dict> v) : data_(std::move(v)) {}                       // NOLINT
  Value(std::shared_ptr<Namespace> v) : data_(std::move(v)) {}                        // NOLINT
  Value(std::shared_ptr<const Callable> v) : data_(std::move(v)) {}                   // NOLINT
  Value(std::shared_ptr<Loop> v) : data_(std::move(v)) {}                             // NOLINT

  static Value MakeUndefined(std::string what);
  static Value MakeList(std::vector<Value> items, bool is_tuple = false);
  // InvalidArgument when nested deeper than kMaxDepth.
  static absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, int depth = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }  // as in Python
  bool is_integral() const { return is_bool() || is_int(); }
  bool is_string() const { return Is<const std::string>(); }
  bool is_list() const { return Is<const List>(); }  // or tuple
  bool is_dict() const { return Is<const Dict>(); }
  bool is_namespace() const { return Is<Namespace>(); }
  bool is_callable() const { return Is<const Callable>(); }
  bool is_loop() const { return Is<Loop>(); }

  // Call each only on a value of that kind.
  const std::string& undefined_what() const { return *std::get<Undefined>(data_).what; }
  int64_t integer() const {
    return is_bool() ? (std::get<bool>(data_) ? 1 : 0) : std::get<int64_t>(data_);
  }
  double number() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
  }
  const std::string& string() const { return *Pointer<const std::string>(); }
  const List& list() const { return *Pointer<const List>(); }
  const Dict& dict() const { return *Pointer<const Dict>(); }
  Namespace& ns() const { return *Pointer<Namespace>(); }
  const Callable& callable() const { return *Pointer<const Callable>(); }
  Loop& loop() const { return *Pointer<Loop>(); }
  const std::shared_ptr<const List>& list_pointer() const { return Pointer<const List>(); }
  const std::shared_ptr<Loop>& loop_pointer() const { return Pointer<Loop>(); }

  bool Truthy() const;
  // Python's name of the type, for messages.
  absl::string_view TypeName() const;
  bool Equals(const Value& other) const;
  // Same object, or same simple value: Python's `is`.
  bool Same(const Value& other) const;
  // Python's str() and repr().
  std::string Str() const;
  std::string Repr() const;
  int depth() const;
  // The cost of writing or comparing the value: its bytes and elements. Counts a list that is
  // contained twice twice, so it may far exceed the memory that the value takes.
  int64_t weight() const;

  // Deepest nesting of lists and dictionaries; deeper values cannot be built.
  static constexpr int kMaxDepth = 150;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<std::shared_ptr<T>>(data_);
  }
  template <typename T>
  const std::shared_ptr<T>& Pointer() const {
    return std::get<std::shared_ptr<T>>(data_);
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Callable>, std::shared_ptr<Loop>>
      data_;
};

// -1, 0 or 1; InvalidArgument for values that Python does not order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);

// Formatting options of json.dumps().
struct JsonStyle {
  std::optional<std::string> indent;  // one level of it; all in one line when absent
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
absl::Status AppendJson(const Value& value, const JsonStyle& style, int level, std::string* out);

// Python's repr() of a float.
std::string FloatRepr(double value);

}  // namespace tandem::tokenizer::jinja

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_VALUE_H_
