// Chat templates for tests. A message is "CONTENT<eos>,", an assistant's begins with "=". The comma is
// never sampled.
#ifndef TANDEM_TESTS_SUPPORT_CHAT_TEMPLATES_H_
#define TANDEM_TESTS_SUPPORT_CHAT_TEMPLATES_H_

namespace tandem::testing {

inline constexpr char kPlainTemplate[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}={% endif %}{{ m.content }}<eos>,"
    "{% endfor %}{% if add_generation_prompt %}={% endif %}";

// Forgets what the assistant said in all turns but the last.
inline constexpr char kForgetfulTemplate[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}="
    "{% if loop.last %}{{ m.content }}{% endif %}{% else %}{{ m.content }}{% endif %}<eos>,"
    "{% endfor %}{% if add_generation_prompt %}={% endif %}";

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CHAT_TEMPLATES_H_
