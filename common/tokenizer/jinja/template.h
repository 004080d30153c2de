// Jinja templates as Hugging Face's chat templates use them.
//
//   ASSIGN_OR_RETURN(jinja::Template t, jinja::Template::Parse("{{ messages[0].content }}"));
//   ASSIGN_OR_RETURN(std::string text, t.Render(context));
//
// The language is Jinja 3.1's as transformers configures it: trim_blocks and lstrip_blocks on, loop
// controls, no autoescape, immutable sandbox, tojson that does not escape HTML, raise_exception()
// and strftime_now(). Unsupported: include, import, extends, block, async, i18n.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_TEMPLATE_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::tokenizer::jinja {

// What a template may consume, beyond what grows with its variables. A chat needs a small part of
// it.
struct Limits {
  int64_t max_steps = 10'000'000;               // expressions and statements evaluated
  int64_t max_work_bytes = int64_t{256} << 20;  // text and list elements made, in total
  int64_t max_output_bytes = 64 << 20;
  int max_call_depth = 100;  // nested macro calls
};

struct RenderOptions {
  Limits limits;
  absl::Time now = absl::InfinitePast();  // for strftime_now(); the present when InfinitePast
};

namespace internal {
struct Block;
}

// A parsed template. Immutable; any thread may render.
class Template {
 public:
  // InvalidArgument with the line if `source` is no template, Unimplemented for an unsupported
  // statement.
  static absl::StatusOr<Template> Parse(absl::string_view source);

  // `context` is an object: the template's variables, key order kept. InvalidArgument with the line
  // when the template fails ("template line 3: 'x' is undefined") or calls raise_exception(),
  // ResourceExhausted beyond the limits.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& context,
                                     const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const internal::Block> root) : root_(std::move(root)) {}

  std::shared_ptr<const internal::Block> root_;
};

}  // namespace tandem::tokenizer::jinja

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_TEMPLATE_H_
