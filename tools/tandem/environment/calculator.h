// The calculator of GSM8K as an environment.
#ifndef TANDEM_TOOLS_TANDEM_ENVIRONMENT_CALCULATOR_H_
#define TANDEM_TOOLS_TANDEM_ENVIRONMENT_CALCULATOR_H_

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/tandem/environment/environment.h"

namespace tandem::environment {

// Answers
//   - calls of the function calculator(expression), each with a message of the role tool;
//   - a turn that ends with "<<EXPRESSION=", with the result and ">>", within the turn.
// What is malformed is answered with what was wrong. Any other turn ends the episode. Outside a chat,
// turns stop at "=" and "</tool_call>"; within one, a tool call ends the model's turn, and "=" must
// be in rollout.stop for the notation "<<".
std::unique_ptr<Environment> MakeCalculator(bool in_chat);

// The function's schema, for the chat template.
nlohmann::ordered_json CalculatorTools();

}  // namespace tandem::environment

#endif  // TANDEM_TOOLS_TANDEM_ENVIRONMENT_CALCULATOR_H_
