#include "common/tokenizer/jinja/runtime.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/text.h"

namespace tandem::tokenizer::jinja {
namespace {

constexpr int64_t kElementBytes = 32;
constexpr int64_t kNamespaceBytes = 128;

// Jinja's name of an object in "... has no attribute ...".
std::string ObjectName(const Value& object) {
  if (object.is_none()) return "None";
  return absl::StrCat(object.TypeName(), " object");
}

Value NoAttribute(const Value& object, absl::string_view name) {
  return Value::MakeUndefined(
      absl::StrCat("'", ObjectName(object), "' has no attribute '", name, "'"));
}

absl::StatusOr<Value> LoopAttribute(const std::shared_ptr<Loop>& pointer, const std::string& name) {
  const Loop& loop = *pointer;
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{loop.depth});
  if (name == "depth0") return Value(int64_t{loop.depth - 1});
  if (name == "previtem") {
    if (index == 0) return Value::MakeUndefined("there is no previous item");
    return loop.items->items[loop.index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= length) return Value::MakeUndefined("there is no next item");
    return loop.items->items[loop.index + 1];
  }
  return Value::MakeUndefined(absl::StrCat("'loop' has no attribute '", name, "'"));
}

// Resolves an index that may count from the end.
std::optional<size_t> Position(int64_t index, size_t length) {
  const auto signed_length = static_cast<int64_t>(length);
  if (index < 0) index += signed_length;
  if (index < 0 || index >= signed_length) return std::nullopt;
  return static_cast<size_t>(index);
}

// Positions that [start:stop:step] selects in a sequence of `length`, like Python's
// slice.indices().
absl::StatusOr<std::vector<size_t>> SlicePositions(const Value& start, const Value& stop,
                                                   const Value& step, int64_t length) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_undefined()) return absl::InvalidArgumentError(bound->undefined_what());
    if (!bound->is_none() && !bound->is_integral()) {
      return absl::InvalidArgumentError("slice indices must be integers or None");
    }
  }
  const int64_t stride = step.is_none() ? 1 : step.integer();
  if (stride == 0) return absl::InvalidArgumentError("slice step cannot be zero");
  const bool forward = stride > 0;
  const int64_t lowest = forward ? 0 : -1, highest = forward ? length : length - 1;
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t v = bound.integer();
    if (v < 0) {
      v = v < -length ? lowest : std::max(v + length, lowest);
    }
    return std::min(v, highest);
  };
  const int64_t begin = clamp(start, forward ? lowest : highest);
  const int64_t end = clamp(stop, forward ? highest : lowest);
  std::vector<size_t> out;
  for (int64_t i = begin; forward ? i < end : i > end;) {
    out.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  return out;
}

}  // namespace

Runtime::~Runtime() {
  // Namespaces may hold one another.
  for (const auto& ns : namespaces_) ns->attributes.clear();
}

absl::Status Runtime::Step() {
  if (++steps_ > limits_.max_steps) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the template took more than ", limits_.max_steps, " steps"));
  }
  return absl::OkStatus();
}

absl::Status Runtime::Charge(int64_t bytes) {
  // A negative size is one that overflowed, and would give budget back.
  if (bytes < 0 || bytes > limits_.max_work_bytes - work_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the template made more than ", limits_.max_work_bytes, " bytes of text and lists"));
  }
  work_ += bytes;
  return absl::OkStatus();
}

absl::Status Runtime::ChargeProduct(int64_t count, int64_t bytes_each) {
  int64_t bytes;
  if (count <= 0 || bytes_each <= 0) return absl::OkStatus();
  if (__builtin_mul_overflow(count, bytes_each, &bytes)) bytes = limits_.max_work_bytes + 1;
  return Charge(bytes);
}

absl::StatusOr<std::string> Runtime::ToText(const Value& value) {
  RETURN_IF_ERROR(Charge(value.weight()));
  return value.Str();
}

absl::StatusOr<Value> Runtime::MakeList(std::vector<Value> items, bool is_tuple) {
  RETURN_IF_ERROR(ChargeProduct(static_cast<int64_t>(items.size()) + 1, kElementBytes));
  Value list = Value::MakeList(std::move(items), is_tuple);
  if (list.depth() > Value::kMaxDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("lists nest deeper than ", Value::kMaxDepth, " levels"));
  }
  return list;
}

absl::StatusOr<Value> Runtime::MakeDict(Dict dict) {
  RETURN_IF_ERROR(ChargeProduct(static_cast<int64_t>(dict.items().size()) + 1, 4 * kElementBytes));
  if (dict.depth() > Value::kMaxDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("dictionaries nest deeper than ", Value::kMaxDepth, " levels"));
  }
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict))));
}

Value Runtime::MakeNamespace(Namespace ns) {
  work_ += kNamespaceBytes;
  namespaces_.push_back(std::make_shared<Namespace>(std::move(ns)));
  return namespaces_.back();
}

absl::StatusOr<Value> Runtime::GetAttribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) return absl::InvalidArgumentError(object.undefined_what());
  if (object.is_namespace()) {
    for (const auto& [attribute, value] : object.ns().attributes) {
      if (attribute == name) return value;
    }
    return NoAttribute(object, name);
  }
  if (HasMethod(object, name)) {
    auto method = std::make_shared<Callable>();
    method->name = name;
    method->depth = object.depth() + 1;
    if (method->depth > Value::kMaxDepth) {
      return absl::ResourceExhaustedError(
          absl::StrCat("methods nest deeper than ", Value::kMaxDepth, " levels"));
    }
    method->call = [object, name](Runtime& runtime, Arguments& arguments) {
      return runtime.CallMethod(object, name, arguments);
    };
    return Value(std::shared_ptr<const Callable>(std::move(method)));
  }
  if (object.is_loop()) return LoopAttribute(object.loop_pointer(), name);
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(absl::string_view(name))) return *value;
  }
  if (object.is_callable() && name == "name") return Value(object.callable().name);
  return NoAttribute(object, name);
}

absl::StatusOr<Value> Runtime::GetItem(const Value& object, const Value& key) {
  if (object.is_undefined()) return absl::InvalidArgumentError(object.undefined_what());
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(key)) return *value;
  }
  if (key.is_integral()) {
    if (object.is_list()) {
      const auto position = Position(key.integer(), object.list().items.size());
      if (position.has_value()) return object.list().items[*position];
    }
    if (object.is_string()) {
      const std::string& text = object.string();
      RETURN_IF_ERROR(Charge(static_cast<int64_t>(text.size())));
      const std::vector<size_t> offsets = CodePointOffsets(text);
      const auto position = Position(key.integer(), offsets.size() - 1);
      if (position.has_value()) {
        return Value(text.substr(offsets[*position], offsets[*position + 1] - offsets[*position]));
      }
    }
    return Value::MakeUndefined(
        absl::StrCat(ObjectName(object), " has no element ", key.integer()));
  }
  if (key.is_string()) return GetAttribute(object, key.string());
  if (key.is_undefined()) return absl::InvalidArgumentError(key.undefined_what());
  return Value::MakeUndefined(absl::StrCat(ObjectName(object), " has no element ", key.Repr()));
}

absl::StatusOr<Value> Runtime::GetSlice(const Value& object, const Value& start, const Value& stop,
                                        const Value& step) {
  if (object.is_undefined()) return absl::InvalidArgumentError(object.undefined_what());
  if (object.is_list()) {
    const List& list = object.list();
    ASSIGN_OR_RETURN(const std::vector<size_t> positions,
                     SlicePositions(start, stop, step, static_cast<int64_t>(list.items.size())));
    std::vector<Value> items;
    items.reserve(positions.size());
    for (size_t i : positions) items.push_back(list.items[i]);
    return MakeList(std::move(items), list.is_tuple);
  }
  if (object.is_string()) {
    const std::string& text = object.string();
    RETURN_IF_ERROR(ChargeProduct(static_cast<int64_t>(text.size()), 2));
    const std::vector<size_t> offsets = CodePointOffsets(text);
    ASSIGN_OR_RETURN(const std::vector<size_t> positions,
                     SlicePositions(start, stop, step, static_cast<int64_t>(offsets.size()) - 1));
    std::string out;
    for (size_t i : positions) out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
    return Value(std::move(out));
  }
  return Value::MakeUndefined(absl::StrCat(ObjectName(object), " cannot be sliced"));
}

absl::StatusOr<std::shared_ptr<const List>> Runtime::Iterate(const Value& value) {
  if (value.is_list()) {
    RETURN_IF_ERROR(Charge(static_cast<int64_t>(value.list().items.size())));
    return value.list_pointer();
  }
  std::vector<Value> items;
  if (value.is_dict()) {
    for (const auto& [key, unused] : value.dict().items()) items.push_back(key);
  } else if (value.is_string()) {
    const std::string& text = value.string();
    RETURN_IF_ERROR(ChargeProduct(static_cast<int64_t>(text.size()), 2 * kElementBytes));
    const std::vector<size_t> offsets = CodePointOffsets(text);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.emplace_back(text.substr(offsets[i], offsets[i + 1] - offsets[i]));
    }
  } else if (!value.is_undefined()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value.TypeName(), "' object is not iterable"));
  }
  ASSIGN_OR_RETURN(const Value list, MakeList(std::move(items)));
  return list.list_pointer();
}

absl::StatusOr<int64_t> Runtime::Length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_list()) return static_cast<int64_t>(value.list().items.size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().items().size());
  if (value.is_string()) {
    RETURN_IF_ERROR(Charge(static_cast<int64_t>(value.string().size()) / 8));
    return static_cast<int64_t>(CodePointOffsets(value.string()).size()) - 1;
  }
  if (value.is_loop()) return static_cast<int64_t>(value.loop().items->items.size());
  return absl::InvalidArgumentError(
      absl::StrCat("object of type '", value.TypeName(), "' has no len()"));
}

absl::StatusOr<Value> Runtime::Call(const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) return absl::InvalidArgumentError(callee.undefined_what());
  if (callee.is_loop() && callee.loop().recurse != nullptr) {
    return callee.loop().recurse->call(*this, arguments);
  }
  if (!callee.is_callable()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", callee.TypeName(), "' object is not callable"));
  }
  return callee.callable().call(*this, arguments);
}

absl::StatusOr<std::vector<const Value*>> Bind(absl::string_view function,
                                               const Arguments& arguments,
                                               std::initializer_list<absl::string_view> names) {
  std::vector<const Value*> out(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(function, "() takes at most ", names.size(),
                                                   " arguments, ", arguments.positional.size(),
                                                   " were given"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) out[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    for (absl::string_view known : names) {
      if (known == name) break;
      ++i;
    }
    if (i == names.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(function, "() got an unexpected argument '", name, "'"));
    }
    if (out[i] != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(function, "() got more than one value for '", name, "'"));
    }
    out[i] = &value;
  }
  return out;
}

absl::StatusOr<int64_t> ToInteger(const Value& value, absl::string_view what) {
  if (value.is_integral()) return value.integer();
  if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_what());
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must be an integer, not '", value.TypeName(), "'"));
}

absl::StatusOr<std::string> ToString(const Value& value, absl::string_view what) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_what());
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must be a string, not '", value.TypeName(), "'"));
}

}  // namespace tandem::tokenizer::jinja
