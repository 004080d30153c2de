// tokenizer.json; one that loads encodes a text and decodes what it made of it.
#include "common/tokenizer/tokenizer.h"

#include "tests/fuzz/input_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::fuzz::InputFolder folder;
  folder.Write("tokenizer.json", data, size);
  const auto tokenizer = tandem::tokenizer::Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) return 0;
  for (const char* text :
       {"", "Hello wörld, 1234 + 5 = \n\n\t<|end|> it's 日本", "aaaaaaaaaaaaaaa"}) {
    const auto ids = (*tokenizer)->Encode(text, /*add_special_tokens=*/true);
    if (ids.ok()) (void)(*tokenizer)->Decode(*ids, /*skip_special_tokens=*/false);
  }
  return 0;
}
