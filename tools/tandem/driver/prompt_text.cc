#include "tools/tandem/driver/prompt_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/images/chat/chat_images.h"
#include "common/io/json_text.h"
#include "common/text/find_all.h"

namespace tandem::driver {
namespace {

using nlohmann::ordered_json;

// Writes a prompt, and notes where its images stand.
class Writer {
 public:
  explicit Writer(const std::string& placeholder) : placeholder_(placeholder) {}

  void Add(absl::string_view text) {
    for (const TextPlace& place : PlacesOf(placeholder_, text)) {
      const auto before = static_cast<int64_t>(out_.text.size());
      out_.images.push_back({before + place.begin, before + place.end});
    }
    absl::StrAppend(&out_.text, text);
  }

  // The content of a message: text, or a list of parts with the text of those that are text.
  void AddContent(const ordered_json& message) {
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) return;
    if (content->is_string()) return Add(content->get_ref<const std::string&>());
    if (!content->is_array()) return Add(io::JsonText(*content));
    const size_t begin = out_.text.size();
    for (const ordered_json& part : *content) {
      if (!part.is_object()) continue;
      if (part.contains("text") && part["text"].is_string()) {
        if (out_.text.size() > begin) absl::StrAppend(&out_.text, "\n");
        Add(part["text"].get_ref<const std::string&>());
      } else if (images::IsImagePart(part)) {
        const auto here = static_cast<int64_t>(out_.text.size());
        out_.images.push_back({here, here});
      }
    }
  }

  bool is_empty() const { return out_.text.empty(); }
  PicturedText Take() { return std::move(out_); }

 private:
  const std::string& placeholder_;
  PicturedText out_;
};

}  // namespace

std::vector<TextPlace> PlacesOf(absl::string_view placeholder, absl::string_view text) {
  std::vector<TextPlace> places;
  for (const size_t at : text::FindAll(text, placeholder)) {
    places.push_back({static_cast<int64_t>(at), static_cast<int64_t>(at + placeholder.size())});
  }
  return places;
}

PicturedText PromptTextAndImages(const Prompt& prompt) {
  Writer writer(prompt.image_placeholder);
  if (!prompt.chat.has_value()) {
    writer.Add(prompt.text);
  } else if (const ordered_json& messages = prompt.chat->messages; messages.size() == 1) {
    writer.AddContent(messages[0]);
  } else {
    for (const ordered_json& message : messages) {
      writer.Add(absl::StrCat(writer.is_empty() ? "" : "\n\n", message.value("role", ""), ":\n"));
      writer.AddContent(message);
    }
  }
  PicturedText out = writer.Take();
  if (out.images.size() != prompt.images.size()) {
    const auto end = static_cast<int64_t>(out.text.size());
    out.images.assign(prompt.images.size(), {end, end});
  }
  return out;
}

std::string PromptText(const Prompt& prompt) { return PromptTextAndImages(prompt).text; }

}  // namespace tandem::driver
