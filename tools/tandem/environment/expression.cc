#include "tools/tandem/environment/expression.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace tandem::environment {
namespace {

constexpr size_t kLongest = 1000;
// Recursion follows what is open, so this bounds the stack.
constexpr int kDeepest = 100;
// Beyond this a double no longer tells neighbouring integers apart.
constexpr double kLargest = 1e15;

// Recursive descent: sum = product {+- product}, product = value {*/ value},
// value = sign value | primary {%}, primary = number | "(" sum ")".
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text), rest_(text) {}

  absl::StatusOr<double> Parse() {
    ASSIGN_OR_RETURN(const double value, Sum());
    if (!rest_.empty()) return Expected("an operator");
    return value;
  }

 private:
  absl::StatusOr<double> Sum() {
    ASSIGN_OR_RETURN(double value, Product());
    while (true) {
      if (Take("+")) {
        ASSIGN_OR_RETURN(const double next, Product());
        value += next;
      } else if (Take("-")) {
        ASSIGN_OR_RETURN(const double next, Product());
        value -= next;
      } else {
        return value;
      }
    }
  }

  absl::StatusOr<double> Product() {
    ASSIGN_OR_RETURN(double value, Value());
    while (true) {
      if (Take("*") || Take("\xC3\x97")) {  // U+00D7, the multiplication sign
        ASSIGN_OR_RETURN(const double next, Value());
        value *= next;
      } else if (Take("/") || Take("\xC3\xB7")) {  // U+00F7, the division sign
        ASSIGN_OR_RETURN(const double next, Value());
        if (next == 0) return absl::InvalidArgumentError("division by zero");
        value /= next;
      } else {
        return value;
      }
    }
  }

  absl::StatusOr<double> Value() {
    const bool is_negative = Take("-");
    if (is_negative || Take("+")) {
      RETURN_IF_ERROR(Enter());
      ASSIGN_OR_RETURN(const double value, Value());
      --depth_;
      return is_negative ? -value : value;
    }
    ASSIGN_OR_RETURN(double value, Primary());
    while (Take("%")) value /= 100;
    return value;
  }

  absl::StatusOr<double> Primary() {
    if (!Take("(")) return Number();
    RETURN_IF_ERROR(Enter());
    ASSIGN_OR_RETURN(const double value, Sum());
    if (!Take(")")) return Expected("\")\"");
    --depth_;
    return value;
  }

  absl::StatusOr<double> Number() {
    Take("$");
    const absl::string_view start = rest_;
    std::string digits;  // without commas
    size_t i = 0;
    const auto is_digit = [&start](size_t at) {
      return at < start.size() && absl::ascii_isdigit(start[at]);
    };
    while (is_digit(i)) digits += start[i++];
    // A first group of one to three digits, then groups of exactly three.
    if (i >= 1 && i <= 3) {
      while (i < start.size() && start[i] == ',') {
        if (!is_digit(i + 1) || !is_digit(i + 2) || !is_digit(i + 3) || is_digit(i + 4)) {
          return Expected("groups of three digits after a comma");
        }
        absl::StrAppend(&digits, start.substr(i + 1, 3));
        i += 4;
      }
    }
    const size_t num_whole = digits.size();
    if (i < start.size() && start[i] == '.') {
      digits += start[i++];
      while (is_digit(i)) digits += start[i++];
    }
    if (num_whole == 0 && digits.size() < 2) return Expected("a number");
    double value = 0;
    if (!absl::SimpleAtod(digits, &value)) return Expected("a number");
    rest_ = start.substr(i);
    Skip();
    return value;
  }

  absl::Status Enter() {
    if (++depth_ <= kDeepest) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kDeepest, " open parentheses and signs"));
  }

  bool Take(absl::string_view symbol) {
    if (depth_ == 0 && rest_.size() == text_.size()) Skip();
    if (!absl::ConsumePrefix(&rest_, symbol)) return false;
    Skip();
    return true;
  }

  void Skip() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  absl::Status Expected(absl::string_view what) const {
    constexpr size_t kShown = 20;
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", what, ", found ",
                     rest_.empty() ? std::string("the end")
                                   : absl::StrCat("\"", rest_.substr(0, kShown), "\"")));
  }

  const absl::string_view text_;
  absl::string_view rest_;
  int depth_ = 0;
};

// Twelve digits, so that 0.1 + 0.2 is 0.3.
std::string Format(double value) {
  const double nearest = std::round(value);
  if (std::abs(value - nearest) <= 1e-12 * std::max(1.0, std::abs(value))) {
    return nearest == 0 ? "0" : absl::StrFormat("%.0f", nearest);
  }
  // Twelve significant digits without an exponent.
  const int before = std::max(0, static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1);
  std::string text = absl::StrFormat("%.*f", std::max(0, 12 - before), value);
  if (!absl::StrContains(text, '.')) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace

absl::StatusOr<std::string> EvaluateExpression(absl::string_view expression) {
  if (expression.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", kLongest, " bytes, found ", expression.size()));
  }
  ASSIGN_OR_RETURN(const double value, Parser(expression).Parse());
  if (!(std::abs(value) < kLargest)) {
    return absl::InvalidArgumentError("the value is 1e15 or more");
  }
  return Format(value);
}

}  // namespace tandem::environment
