// Merges a YAML tree into a message: values in the tree replace those of the message.
#ifndef TANDEM_COMMON_CONFIG_MERGE_H_
#define TANDEM_COMMON_CONFIG_MERGE_H_

#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/config/place.h"

namespace tandem::config {

// Merges sources into one message, section by section, and collects every error as a line "PLACE:
// KEY: what is wrong". Time and memory are bounded however deep, wide or cyclic (aliases) the YAML
// is: a text may state little and, through aliases, merge without end.
class Merger {
 public:
  // The caller owns `*message`, which outlives the merger.
  explicit Merger(google::protobuf::Message* message) : root_(message) {}

  // `name` appears in messages, with the line; "" for the defaults, whose places are not kept.
  void MergeYaml(absl::string_view text, const std::string& name);
  // Merges an override such as "actor.optim.lr=3e-4".
  void MergeOverride(const std::string& assignment);

  const std::vector<std::string>& errors() const { return errors_; }
  const Places& places() const { return places_; }

 private:
  // How to describe a node's place: the file and the node's line, or the whole override.
  struct Source {
    std::string name;
    bool has_lines = true;
    bool keep_places = true;
  };

  void MergeSection(const Source& source, const YAML::Node& node, const std::string& path,
                    google::protobuf::Message* message);
  void MergeField(const Source& source, const YAML::Node& node, const std::string& path,
                  const google::protobuf::FieldDescriptor& field,
                  google::protobuf::Message* message);
  void MergeList(const Source& source, const YAML::Node& node, const std::string& path,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message* message);
  // Counts a node against what one text may merge. False, with an error the first time, once that
  // is used up.
  bool Charge(const Source& source, const YAML::Node& node, const std::string& path, size_t size);
  std::string PlaceOf(const Source& source, const YAML::Node& node) const;
  std::string UnknownKey(const std::string& key, const google::protobuf::Message& section) const;
  void AddError(const std::string& place, const std::string& path, const std::string& problem);

  google::protobuf::Message* const root_;
  std::vector<std::string> errors_;
  Places places_;
  size_t merged_ = 0;  // what Charge() counted in this text
  int depth_ = 0;      // sections around the present one
};

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_MERGE_H_
