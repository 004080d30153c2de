// Evaluates arithmetic as school books and GSM8K write it.
//
//   ASSIGN_OR_RETURN(const std::string sum, EvaluateExpression("(1,000 + 25%) / 2"));  // "500.125"
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_EXPRESSION_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_EXPRESSION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::environment {

// Returns the value as a decimal number without needless zeros, "24" or "0.333333333333".
//   - Numbers: "12", "3.50", ".5", "5."; thousands in groups of three, "1,000,000"; "$" before a number
//     is ignored.
//   - "+", "-", "*", "/", parentheses, signs; "×" and "÷"; spaces between them.
//   - "%" after a value divides it by 100.
// INVALID_ARGUMENT says what was expected and where: for anything else, a division by zero, a value
// of 1e15 or more in magnitude, more than 100 open parentheses and signs, or more than 1000 bytes.
absl::StatusOr<std::string> EvaluateExpression(absl::string_view expression);

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_EXPRESSION_H_
