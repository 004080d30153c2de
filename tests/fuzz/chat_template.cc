// A chat template: parsed, and rendered for a short chat with little to spend.
#include "common/tokenizer/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tandem::tokenizer::jinja::Template;
  const auto parsed = Template::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  static const auto chat = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1 < 2?"},
                 {"role": "assistant", "content": "yes", "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  (void)parsed->Render(
      chat,
      {.limits = {.max_steps = 20'000, .max_work_bytes = 1 << 20, .max_output_bytes = 1 << 18},
       .now = absl::FromUnixSeconds(0)});
  return 0;
}
