// Operators between values, as Python has them.
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {
namespace {

absl::Status Overflow(absl::string_view op) {
  return absl::InvalidArgumentError(absl::StrCat("the result of '", op, "' is beyond 64 bits"));
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}

absl::StatusOr<Value> Power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow("**");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow("**");
  }
  return Value(result);
}

absl::StatusOr<Value> Integers(absl::string_view op, int64_t a, int64_t b) {
  int64_t result;
  if (op == "+")
    return __builtin_add_overflow(a, b, &result) ? Overflow(op)
                                                 : absl::StatusOr<Value>(Value(result));
  if (op == "-")
    return __builtin_sub_overflow(a, b, &result) ? Overflow(op)
                                                 : absl::StatusOr<Value>(Value(result));
  if (op == "*")
    return __builtin_mul_overflow(a, b, &result) ? Overflow(op)
                                                 : absl::StatusOr<Value>(Value(result));
  if (op == "**") return Power(a, b);
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (a == std::numeric_limits<int64_t>::min() && b == -1)
    return op == "%" ? absl::StatusOr<Value>(Value(0)) : Overflow(op);
  if (op == "//") return Value(FloorDivide(a, b));
  const int64_t rest = a % b;  // as in Python, has the sign of b
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

absl::StatusOr<Value> Floats(absl::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return absl::InvalidArgumentError("float division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

}  // namespace

absl::StatusOr<Value> Runtime::Binary(absl::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) return absl::InvalidArgumentError(a.undefined_what());
  if (op == "%" && a.is_string()) {
    const std::vector<Value> one{b};
    ASSIGN_OR_RETURN(
        std::string text,
        FormatPercent(*this, a.string(), b.is_list() && b.list().is_tuple ? b.list().items : one));
    return Value(std::move(text));
  }
  if (b.is_undefined()) return absl::InvalidArgumentError(b.undefined_what());
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return Floats(op, a.number(), b.number());
    return Integers(op, a.integer(), b.integer());
  }
  if (op == "+" && a.is_string() && b.is_string()) {
    RETURN_IF_ERROR(Charge(static_cast<int64_t>(a.string().size() + b.string().size())));
    return Value(absl::StrCat(a.string(), b.string()));
  }
  if (op == "+" && a.is_list() && b.is_list() && a.list().is_tuple == b.list().is_tuple) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return MakeList(std::move(items), a.list().is_tuple);
  }
  if (op == "*" && (a.is_integral() || b.is_integral())) {
    const Value& sequence = a.is_integral() ? b : a;
    const int64_t count = a.is_integral() ? a.integer() : b.integer();
    if (sequence.is_string()) {
      RETURN_IF_ERROR(ChargeProduct(count, static_cast<int64_t>(sequence.string().size())));
      std::string out;
      if (!sequence.string().empty()) {
        for (int64_t i = 0; i < count; ++i) out.append(sequence.string());
      }
      return Value(std::move(out));
    }
    if (sequence.is_list()) {
      const List& list = sequence.list();
      RETURN_IF_ERROR(ChargeProduct(count, static_cast<int64_t>(list.items.size()) * 32));
      std::vector<Value> items;
      if (!list.items.empty()) {
        for (int64_t i = 0; i < count; ++i) {
          items.insert(items.end(), list.items.begin(), list.items.end());
        }
      }
      return MakeList(std::move(items), list.is_tuple);
    }
  }
  if (op == "+" && a.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("can only concatenate str (not \"", b.TypeName(),
                                                   "\") to str; '~' joins any two values"));
  }
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand type(s) for ", op, ": '",
                                                 a.TypeName(), "' and '", b.TypeName(), "'"));
}

absl::StatusOr<bool> Runtime::CompareWith(absl::string_view op, const Value& a, const Value& b) {
  if (op == "in") return Contains(b, a);
  if (op == "not in") {
    ASSIGN_OR_RETURN(const bool contained, Contains(b, a));
    return !contained;
  }
  RETURN_IF_ERROR(Charge(std::min(a.weight(), b.weight()) / 8));
  if (op == "==") return a.Equals(b);
  if (op == "!=") return !a.Equals(b);
  ASSIGN_OR_RETURN(const int order, Compare(a, b));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

absl::StatusOr<bool> Runtime::Contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) return absl::InvalidArgumentError(item.undefined_what());
      return absl::InvalidArgumentError(
          absl::StrCat("'in <string>' requires string as left operand, not ", item.TypeName()));
    }
    RETURN_IF_ERROR(Charge(container.weight() / 8));
    return absl::StrContains(container.string(), item.string());
  }
  if (container.is_dict()) {
    RETURN_IF_ERROR(Charge(item.weight()));
    return container.dict().Find(item) != nullptr;
  }
  if (container.is_list()) {
    for (const Value& element : container.list().items) {
      RETURN_IF_ERROR(Charge(1 + std::min(element.weight(), item.weight()) / 8));
      if (element.Equals(item)) return true;
    }
    return false;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("argument of type '", container.TypeName(), "' is not iterable"));
}

absl::StatusOr<std::string> FormatPercent(Runtime& runtime, const std::string& format,
                                          const std::vector<Value>& values) {
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    std::string spec = "%";
    int width = 0, precision = -1;
    ++i;
    while (i < format.size() && absl::StrContains("-+ 0#", format[i])) spec.push_back(format[i++]);
    const auto number = [&](int* value) {
      *value = 0;
      while (i < format.size() && format[i] >= '0' && format[i] <= '9' && *value < 100000) {
        *value = *value * 10 + (format[i++] - '0');
      }
    };
    number(&width);
    if (i < format.size() && format[i] == '.') {
      ++i;
      number(&precision);
    }
    if (i >= format.size()) return absl::InvalidArgumentError("incomplete format");
    const char kind = format[i];
    if (kind == '%') {
      out.push_back('%');
      continue;
    }
    if (next >= values.size()) {
      return absl::InvalidArgumentError("not enough arguments for format string");
    }
    const Value& value = values[next++];
    if (value.is_undefined()) return absl::InvalidArgumentError(value.undefined_what());
    RETURN_IF_ERROR(runtime.Charge(value.weight() + width + std::max(precision, 0)));
    if (width > 4096 || precision > 300) {
      return absl::InvalidArgumentError("a format is wider than 4096 or more precise than 300");
    }
    if (width > 0) absl::StrAppend(&spec, width);
    if (precision >= 0) absl::StrAppend(&spec, ".", precision);
    std::string piece;
    if (kind == 's' || kind == 'r') {
      spec += 's';
      piece = kind == 's' ? value.Str() : value.Repr();
      const auto parsed = absl::ParsedFormat<'s'>::New(spec);
      if (parsed == nullptr) return absl::InvalidArgumentError("bad format");
      out += absl::StrFormat(*parsed, piece);
    } else if (kind == 'd' || kind == 'i' || kind == 'u' || kind == 'x' || kind == 'X' ||
               kind == 'o') {
      if (!value.is_number()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "%", std::string(1, kind), " format: a number is required, not ", value.TypeName()));
      }
      spec += kind == 'i' || kind == 'u' ? 'd' : kind;
      int64_t whole = 0;
      if (value.is_float()) {
        if (!(std::abs(value.number()) < 9e18)) return Overflow("%");
        whole = static_cast<int64_t>(value.number());
      } else {
        whole = value.integer();
      }
      const auto parsed = absl::ParsedFormat<absl::FormatConversionCharSet::kIntegral>::New(spec);
      if (parsed == nullptr) return absl::InvalidArgumentError("bad format");
      out += absl::StrFormat(*parsed, whole);
    } else if (absl::StrContains("eEfFgG", kind)) {
      if (!value.is_number()) {
        return absl::InvalidArgumentError(
            absl::StrCat("must be real number, not ", value.TypeName()));
      }
      spec += kind;
      const auto parsed = absl::ParsedFormat<absl::FormatConversionCharSet::kFloating>::New(spec);
      if (parsed == nullptr) return absl::InvalidArgumentError("bad format");
      out += absl::StrFormat(*parsed, value.number());
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unsupported format character '", std::string(1, kind), "'"));
    }
  }
  if (next < values.size()) {
    return absl::InvalidArgumentError("not all arguments converted during string formatting");
  }
  return out;
}

}  // namespace tandem::tokenizer::jinja
