#include "common/tokenizer/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja {
namespace {

std::string StringRepr(absl::string_view text) {
  const bool use_double =
      text.find('\'') != absl::string_view::npos && text.find('"') == absl::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const char32_t c = DecodeAt(text, i, &length);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else {
      const Category category = GeneralCategory(c);
      const bool printable = c == ' ' || !(category == kCn || category >= kZs);
      if (printable) {
        out.append(text.data() + i, length);
      } else if (c < 0x100) {
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(c));
      } else if (c < 0x10000) {
        absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
      } else {
        absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(c));
      }
    }
    i += length;
  }
  out.push_back(quote);
  return out;
}

int64_t AddWeight(int64_t a, int64_t b) {
  constexpr int64_t kHeaviest = int64_t{1} << 60;
  return std::min(a + b, kHeaviest);
}

template <typename T>
int Order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  // The shortest digits that read back as the value, "d.ddde+XX".
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const absl::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  std::string digits;
  bool negative = false;
  for (char c : text.substr(0, e)) {
    if (c == '-') {
      negative = true;
    } else if (c != '.') {
      digits.push_back(c);
    }
  }
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) absl::StrAppend(&out, ".", digits.substr(1));
    absl::StrAppendFormat(&out, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    absl::StrAppend(&out, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    absl::StrAppend(&out, digits.substr(0, whole), ".",
                    digits.size() > whole ? digits.substr(whole) : "0");
  }
  return out;
}

std::optional<std::string> Dict::HashKey(const Value& key) {
  if (key.is_string()) return absl::StrCat("s", key.string());
  if (key.is_integral()) return absl::StrCat("i", key.integer());
  if (key.is_float()) {
    const double v = key.number();
    if (v == std::floor(v) && std::abs(v) < 9e15) return absl::StrCat("i", static_cast<int64_t>(v));
    return absl::StrCat("f", FloatRepr(v));
  }
  if (key.is_none()) return std::string("n");
  if (key.is_list() && key.list().is_tuple) {
    std::string out = "t";
    for (const Value& item : key.list().items) {
      const std::optional<std::string> part = HashKey(item);
      if (!part.has_value()) return std::nullopt;
      absl::StrAppend(&out, part->size(), ":", *part);
    }
    return out;
  }
  return std::nullopt;
}

bool Dict::Set(const Value& key, Value value) {
  const std::optional<std::string> hash = HashKey(key);
  if (!hash.has_value()) return false;
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  weight_ = AddWeight(weight_, AddWeight(key.weight(), value.weight()));
  const auto [it, inserted] = index_.emplace(*hash, items_.size());
  if (inserted) {
    items_.emplace_back(key, std::move(value));
  } else {
    items_[it->second].second = std::move(value);
  }
  return true;
}

const Value* Dict::Find(const Value& key) const {
  const std::optional<std::string> hash = HashKey(key);
  if (!hash.has_value()) return nullptr;
  const auto it = index_.find(*hash);
  return it == index_.end() ? nullptr : &items_[it->second].second;
}

const Value* Dict::Find(absl::string_view key) const {
  const auto it = index_.find(absl::StrCat("s", key));
  return it == index_.end() ? nullptr : &items_[it->second].second;
}

Value Value::MakeUndefined(std::string what) {
  Value out;
  out.data_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return out;
}

Value Value::MakeList(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    list->depth = std::max(list->depth, item.depth() + 1);
    list->weight = AddWeight(list->weight, item.weight());
  }
  list->items = std::move(items);
  list->is_tuple = is_tuple;
  return std::shared_ptr<const List>(std::move(list));
}

absl::StatusOr<Value> Value::FromJson(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("the messages nest deeper than ", kMaxDepth, " levels"));
  }
  if (json.is_null()) return Value();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return Value(json.get<double>());
  }
  if (json.is_number_integer()) return Value(json.get<int64_t>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) {
    const std::string& text = json.get_ref<const std::string&>();
    RETURN_IF_ERROR(ValidateUtf8(text)) << "in the messages";
    return Value(text);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const auto& element : json) {
      ASSIGN_OR_RETURN(Value item, FromJson(element, depth + 1));
      items.push_back(std::move(item));
    }
    return MakeList(std::move(items));
  }
  if (json.is_object()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [key, element] : json.items()) {
      RETURN_IF_ERROR(ValidateUtf8(key)) << "in the messages";
      ASSIGN_OR_RETURN(Value item, FromJson(element, depth + 1));
      dict->Set(Value(key), std::move(item));
    }
    return Value(std::shared_ptr<const Dict>(std::move(dict)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a JSON ", json.type_name(), " cannot be given to a template"));
}

int Value::depth() const {
  if (is_list()) return list().depth;
  if (is_dict()) return dict().depth();
  if (is_loop()) return loop().items->depth;
  if (is_callable()) return callable().depth;
  return 0;
}

int64_t Value::weight() const {
  constexpr int64_t kSimple = 8;
  if (is_string()) return kSimple + static_cast<int64_t>(string().size());
  if (is_list()) return list().weight;
  if (is_dict()) return dict().weight();
  return kSimple;
}

bool Value::Truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_integral()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().items.empty();
  if (is_dict()) return !dict().items().empty();
  return true;
}

absl::string_view Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return list().is_tuple ? "tuple" : "list";
  if (is_dict()) return "dict";
  if (is_namespace()) return "Namespace";
  if (is_loop()) return "LoopContext";
  return "function";
}

bool Value::Equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    if (is_float() || other.is_float()) return number() == other.number();
    return integer() == other.integer();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (is_string()) return string() == other.string();
  if (is_list()) {
    const List &a = list(), &b = other.list();
    return a.is_tuple == b.is_tuple &&
           std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                      [](const Value& x, const Value& y) { return x.Equals(y); });
  }
  if (is_dict()) {
    if (dict().items().size() != other.dict().items().size()) return false;
    for (const auto& [key, value] : dict().items()) {
      const Value* there = other.dict().Find(key);
      if (there == nullptr || !value.Equals(*there)) return false;
    }
    return true;
  }
  return Same(other);
}

bool Value::Same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (is_integral() || is_string()) return Equals(other);
  if (is_float()) return number() == other.number();
  if (is_list()) return list_pointer() == other.list_pointer();
  if (is_dict()) return &dict() == &other.dict();
  if (is_namespace()) return &ns() == &other.ns();
  if (is_loop()) return &loop() == &other.loop();
  return &callable() == &other.callable();
}

std::string Value::Str() const {
  if (is_undefined()) return "";
  if (is_string()) return string();
  return Repr();
}

std::string Value::Repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return integer() != 0 ? "True" : "False";
  if (is_int()) return absl::StrCat(integer());
  if (is_float()) return FloatRepr(number());
  if (is_string()) return StringRepr(string());
  if (is_list()) {
    const List& l = list();
    std::string inside = absl::StrJoin(
        l.items, ", ", [](std::string* out, const Value& v) { out->append(v.Repr()); });
    if (!l.is_tuple) return absl::StrCat("[", inside, "]");
    return absl::StrCat("(", inside, l.items.size() == 1 ? ",)" : ")");
  }
  if (is_dict()) {
    return absl::StrCat("{",
                        absl::StrJoin(dict().items(), ", ",
                                      [](std::string* out, const std::pair<Value, Value>& item) {
                                        absl::StrAppend(out, item.first.Repr(), ": ",
                                                        item.second.Repr());
                                      }),
                        "}");
  }
  // Namespaces can contain themselves: do not show their contents.
  if (is_namespace()) return "<Namespace>";
  if (is_loop()) {
    return absl::StrCat("<LoopContext ", loop().index + 1, "/", loop().items->items.size(), ">");
  }
  return absl::StrCat("<function ", callable().name, ">");
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return Order(a.number(), b.number());
    return Order(a.integer(), b.integer());
  }
  // UTF-8 sorts as its code points do.
  if (a.is_string() && b.is_string()) return Order(a.string(), b.string());
  if (a.is_list() && b.is_list() && a.list().is_tuple == b.list().is_tuple) {
    const auto &x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!x[i].Equals(y[i])) return Compare(x[i], y[i]);
    }
    return Order(x.size(), y.size());
  }
  if (a.is_undefined()) return absl::InvalidArgumentError(a.undefined_what());
  if (b.is_undefined()) return absl::InvalidArgumentError(b.undefined_what());
  return absl::InvalidArgumentError(
      absl::StrCat("values of '", a.TypeName(), "' and '", b.TypeName(), "' have no order"));
}

}  // namespace tandem::tokenizer::jinja
