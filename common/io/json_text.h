// JsonText: serializes JSON whose strings may be of anything: paths, names, texts of peers and
// models. nlohmann-json's dump() throws on bytes that are not UTF-8.
//
//   std::printf("%s\n", io::JsonText(line).c_str());
#ifndef TANDEM_COMMON_IO_JSON_TEXT_H_
#define TANDEM_COMMON_IO_JSON_TEXT_H_

#include <string>

namespace tandem::io {

// Writes U+FFFD in place of bytes that are not UTF-8. One line if `indent` is -1.
template <typename Json>
std::string JsonText(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_JSON_TEXT_H_
