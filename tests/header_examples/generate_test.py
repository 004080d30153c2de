"""What generate.py takes for an example, and what it makes of one."""
import pathlib
import unittest

import generate

HEADER = pathlib.Path("common/net/host_port.h")


def blocks(text):
    return generate.blocks_of(HEADER, text)


class Blocks(unittest.TestCase):
    def test_an_indented_block_with_a_statement_is_code(self):
        (block,) = blocks("// A port.\n//\n//   int port = 0;  // any\n#ifndef X\n")
        self.assertTrue(block.is_code())
        self.assertEqual(block.place(), f"{HEADER}:3")

    def test_an_empty_line_separates_two_examples(self):
        first, second = blocks("//   int port = 0;\n//\n//   int port = 1;\n")
        self.assertEqual((first.line, second.line), (1, 3))

    def test_list_items_are_no_blocks(self):
        self.assertEqual(blocks("// - A host is a name;\n//   or an address;\n//\n//   - likewise;\n"), [])

    def test_a_table_is_text(self):
        (block,) = blocks("//   name      a host's name\n//   address   in brackets, if IPv6\n")
        self.assertFalse(block.is_code())
        self.assertIsNone(block.hidden_code())

    def test_an_example_without_a_whole_statement_is_a_problem(self):
        (block,) = blocks("//   ASSIGN_OR_RETURN(HostPort port, Parse(text)) and use it\n")
        self.assertFalse(block.is_code())
        self.assertEqual(block.hidden_code(), "ASSIGN_OR_RETURN")


class Source(unittest.TestCase):
    def test_three_dots_stand_for_an_expression_or_for_statements(self):
        self.assertEqual(generate.replace_dots("Parse(...);"), "Parse(Any());")
        self.assertEqual(generate.replace_dots("...  // uses it"), ";  // uses it")
        self.assertEqual(generate.replace_dots('Parse("a ... z");  // ...'), 'Parse("a ... z");  // ...')

    def test_the_compiler_names_the_line_of_the_header(self):
        source = generate.source_of(blocks("\n//   int port = 0;\n"))
        self.assertIn(f'#line 2 "{generate.ROOT / HEADER}"\n   int port = 0;\n', source)
        self.assertIn("namespace tandem::net::host_port_example {", source)

    def test_a_function_stays_one_and_an_override_joins_a_class(self):
        self.assertNotIn("Example0", generate.source_of(blocks("//   int main() {\n//     return 0;\n//   }\n")))
        method = generate.source_of(blocks("//   void Serve(int x) override {\n//     Use(x);\n//   }\n"))
        self.assertIn("struct Example0 : Base {", method)


if __name__ == "__main__":
    unittest.main()
