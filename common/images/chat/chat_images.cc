#include "common/images/chat/chat_images.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "common/text/find_all.h"

namespace tandem::images {
namespace {

using nlohmann::ordered_json;

absl::Status At(const std::string& place, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", message));
}

std::string TypeOf(const ordered_json& part) {
  const auto found = part.find("type");
  return found != part.end() && found->is_string() ? found->get<std::string>() : "text";
}

// What a part says of its source; an empty source where it says nothing.
absl::StatusOr<std::string> SourceOf(const ordered_json& part, const std::string& place) {
  for (const char* key : {"image", "image_url", "url", "path", "base64"}) {
    const auto found = part.find(key);
    if (found == part.end() || found->is_null()) continue;
    if (found->is_string()) {
      const std::string& text = found->get_ref<const std::string&>();
      return key == absl::string_view("base64") ? absl::StrCat("data:;base64,", text) : text;
    }
    if (found->is_object()) {
      const auto url = found->find("url");
      if (url != found->end() && url->is_string()) return url->get<std::string>();
    }
    return At(absl::StrCat(place, ".", key), "expected a path or URL, as text");
  }
  return std::string();
}

// Collects images in the order in which a template writes them.
class Collector {
 public:
  explicit Collector(absl::string_view placeholder) : placeholder_(placeholder) {}

  absl::Status AddContent(const ordered_json& content, const std::string& place) {
    if (content.is_string()) {
      AddText(content.get_ref<const std::string&>(), place);
      return absl::OkStatus();
    }
    if (!content.is_array()) return absl::OkStatus();
    for (size_t i = 0; i < content.size(); ++i) {
      if (!content[i].is_object()) continue;
      RETURN_IF_ERROR(AddPart(content[i], absl::StrCat(place, "[", i, "]")));
    }
    return absl::OkStatus();
  }

  std::vector<ChatImage> images;

 private:
  absl::Status AddPart(const ordered_json& part, const std::string& place) {
    const std::string type = TypeOf(part);
    if (IsImagePart(part)) {
      ASSIGN_OR_RETURN(std::string source, SourceOf(part, place));
      images.push_back({std::move(source), place});
    } else if (type == "video" || type == "audio" || type == "video_url" || type == "input_audio") {
      return At(place, absl::StrCat("a part of type ", type, "; expected text or an image"));
    } else if (const auto text = part.find("text"); text != part.end() && text->is_string()) {
      AddText(text->get_ref<const std::string&>(), place);
    }
    return absl::OkStatus();
  }

  void AddText(const std::string& text, const std::string& place) {
    images.resize(images.size() + text::FindAll(text, placeholder_).size(), {"", place});
  }

  const absl::string_view placeholder_;
};

}  // namespace

bool IsImagePart(const ordered_json& part) {
  const std::string type = TypeOf(part);
  return type == "image" || type == "image_url";
}

absl::StatusOr<std::vector<ChatImage>> FindChatImages(const ordered_json& messages,
                                                      const ordered_json* listed,
                                                      absl::string_view placeholder) {
  Collector collector(placeholder);
  for (size_t i = 0; messages.is_array() && i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;
    const auto content = messages[i].find("content");
    if (content == messages[i].end()) continue;
    RETURN_IF_ERROR(collector.AddContent(*content, absl::StrCat("messages[", i, "].content")));
  }
  std::vector<ChatImage>& images = collector.images;
  if (listed != nullptr) {
    if (!listed->is_array()) return At("images", "expected a list of paths or URLs");
    for (size_t i = 0; i < listed->size(); ++i) {
      const std::string place = absl::StrCat("images[", i, "]");
      if (!(*listed)[i].is_string()) return At(place, "expected a path or URL, as text");
      const std::string& source = (*listed)[i].get_ref<const std::string&>();
      if (i >= images.size()) {
        return At(place, absl::StrCat("has no part in messages, which have ",
                                      text::Count(static_cast<int64_t>(images.size()), "image")));
      }
      if (images[i].source.empty()) images[i].source = source;
      if (images[i].source != source) {
        return At(images[i].place, absl::StrCat("names another image than ", place));
      }
    }
    if (images.size() > listed->size()) {
      return At(images[listed->size()].place,
                absl::StrCat("is image ", listed->size() + 1,
                             " of the chat, but the row's images are ", listed->size()));
    }
  }
  for (const ChatImage& image : images) {
    if (image.source.empty()) {
      return At(image.place,
                "an image without a source: give \"image\" in the part, or the row's \"images\"");
    }
  }
  return std::move(images);
}

absl::StatusOr<std::vector<int32_t>> ExpandPlaceholders(absl::Span<const int32_t> ids,
                                                        const PlaceholderIds& placeholders,
                                                        absl::Span<const ChatImage> images,
                                                        absl::Span<const PlaceholderGrid> grids) {
  const int64_t written = std::count(ids.begin(), ids.end(), placeholders.placeholder);
  if (written < static_cast<int64_t>(images.size())) {
    return At(images[written].place,
              absl::StrCat("the chat template wrote no placeholder for this image: ", written,
                           " for ", text::Count(static_cast<int64_t>(images.size()), "image")));
  }
  if (written > static_cast<int64_t>(images.size())) {
    return At("messages",
              absl::StrCat("the chat template wrote ", text::Count(written, "placeholder"), " for ",
                           text::Count(static_cast<int64_t>(images.size()), "image")));
  }
  std::vector<int32_t> out;
  size_t image = 0;
  for (const int32_t id : ids) {
    if (id == placeholders.placeholder) {
      AppendPlaceholders(placeholders, grids[image++], &out);
    } else {
      out.push_back(id);
    }
  }
  return out;
}

}  // namespace tandem::images
