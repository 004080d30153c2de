#include "common/tokenizer/jinja/template.h"

#include <utility>

#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/evaluator.h"
#include "common/tokenizer/jinja/parser.h"

namespace tandem::tokenizer::jinja {

absl::StatusOr<Template> Template::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(internal::Block root, internal::Parse(source));
  return Template(std::make_shared<const internal::Block>(std::move(root)));
}

absl::StatusOr<std::string> Template::Render(const nlohmann::ordered_json& context,
                                             const RenderOptions& options) const {
  ASSIGN_OR_RETURN(const Value variables, Value::FromJson(context));
  if (!variables.is_dict()) {
    return absl::InvalidArgumentError("the variables of a template must be a JSON object");
  }
  const absl::Time now = options.now == absl::InfinitePast() ? absl::Now() : options.now;
  // A long conversation takes more work than a short one, so limits grow with it.
  Limits limits = options.limits;
  limits.max_work_bytes += 64 * variables.weight();
  limits.max_output_bytes += 4 * variables.weight();
  return internal::Evaluator(limits, now).Render(*root_, variables.dict());
}

}  // namespace tandem::tokenizer::jinja
