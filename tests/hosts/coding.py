"""A coding session of 56 calls, 30 that look and 26 that change: a shop gets a discount, its tests, its documents, three commits.

Each entry is (server, tool, arguments, effect); a list of entries is a group of changes that belong together. The steps are in the order
in which an agent would take them: look, change, look at what became of it.
"""

FILES = {
    "README.md": "# Shop\n\nA small shop: a cart, prices, an order.\n\n## Running\n\n    node src/main.js\n\n## Testing\n\n    node --test\n",
    "package.json": '{\n  "name": "shop",\n  "version": "1.2.0",\n  "type": "module",\n  "scripts": { "test": "node --test" }\n}\n',
    "src/main.js": 'import { Cart } from "./cart.js";\nimport { total } from "./price.js";\n\nconst cart = new Cart();\n'
                   'cart.add({ id: "tea", price: 4.5 }, 2);\ncart.add({ id: "cup", price: 12 }, 1);\nconsole.log(total(cart));\n',
    "src/cart.js": "export class Cart {\n  constructor() {\n    this.lines = [];\n  }\n\n  add(item, count = 1) {\n"
                   "    const line = this.lines.find((line) => line.item.id === item.id);\n    if (line) {\n      line.count += count;\n"
                   "    } else {\n      this.lines.push({ item, count });\n    }\n  }\n\n  remove(id) {\n"
                   "    this.lines = this.lines.filter((line) => line.item.id !== id);\n  }\n\n  get isEmpty() {\n"
                   "    return this.lines.length === 0;\n  }\n}\n",
    "src/price.js": 'import { VAT } from "./tax.js";\n\nexport function net(cart) {\n'
                    "  return cart.lines.reduce((sum, line) => sum + line.item.price * line.count, 0);\n}\n\n"
                    "export function total(cart) {\n  return round(net(cart) * (1 + VAT));\n}\n\n"
                    "function round(amount) {\n  return Math.round(amount * 100) / 100;\n}\n",
    "src/tax.js": "export const VAT = 0.19;\n",
    "src/order.js": 'import { total } from "./price.js";\n\nexport function order(cart, customer) {\n  if (cart.isEmpty) {\n'
                    '    throw new Error("the cart is empty");\n  }\n'
                    "  return { customer, lines: cart.lines, total: total(cart), placed: new Date().toISOString() };\n}\n",
    "src/util.js": "export function round(amount) {\n  return Math.round(amount * 100) / 100;\n}\n",
    "test/cart.test.js": 'import test from "node:test";\nimport assert from "node:assert";\nimport { Cart } from "../src/cart.js";\n\n'
                         'test("adds", () => {\n  const cart = new Cart();\n  cart.add({ id: "tea", price: 4.5 });\n'
                         "  assert.equal(cart.lines.length, 1);\n});\n",
    "test/price.test.js": 'import test from "node:test";\nimport assert from "node:assert";\nimport { Cart } from "../src/cart.js";\n'
                          'import { total } from "../src/price.js";\n\ntest("total has tax", () => {\n  const cart = new Cart();\n'
                          '  cart.add({ id: "tea", price: 100 });\n  assert.equal(total(cart), 119);\n});\n',
    "docs/prices.md": "# Prices\n\nPrices are net. The total adds VAT of 19 %.\n",
}

DISCOUNT = (
    "const STEPS = [\n  { from: 100, share: 0.1 },\n  { from: 50, share: 0.05 },\n];\n\n"
    "export function discount(net) {\n  const step = STEPS.find((step) => net >= step.from);\n  return step ? net * step.share : 0;\n}\n"
)
DISCOUNT_TEST = (
    'import test from "node:test";\nimport assert from "node:assert";\nimport { discount } from "../src/pricing/discount.js";\n\n'
    'test("small carts get none", () => assert.equal(discount(49), 0));\ntest("from 50", () => assert.equal(discount(50), 2.5));\n'
    'test("from 100", () => assert.equal(discount(100), 10));\n'
)
ORDER_TEST = (
    'import test from "node:test";\nimport assert from "node:assert";\nimport { Cart } from "../src/cart.js";\n'
    'import { order } from "../src/order.js";\n\ntest("an empty cart is refused", () => assert.throws(() => order(new Cart(), "ada")));\n'
)


def session(root):
    """The steps, with the paths of this folder."""

    def at(path):
        return f"{root}/{path}"

    def files(tool, effect="read", **args):
        return ("files", tool, args, effect)

    def git(tool, effect="read", **args):
        return ("git", tool, {"repo_path": str(root), **args}, effect)

    def read(path):
        return files("read_text_file", path=at(path))

    def write(path, content):
        return files("write_file", "destructive", path=at(path), content=content)

    def edit(path, old, new):
        return files("edit_file", "destructive", path=at(path), edits=[{"oldText": old, "newText": new}])

    def move(path, to):
        return files("move_file", "destructive", source=at(path), destination=at(to))

    def folder(path):
        return files("create_directory", "write", path=at(path))

    def add(*paths):
        return git("git_add", "write", files=list(paths))

    def commit(message):
        return git("git_commit", "write", message=message)

    code = [
        git("git_create_branch", "write", branch_name="discount"),
        git("git_checkout", "write", branch_name="discount"),
        folder("src/pricing"),
        write("src/pricing/discount.js", DISCOUNT),
        move("src/tax.js", "src/pricing/tax.js"),
        edit("src/price.js", '"./tax.js";', '"./pricing/tax.js";\nimport { discount } from "./pricing/discount.js";\nimport { round } from "./util.js";'),
        edit("src/price.js", "round(net(cart) * (1 + VAT))", "round((net(cart) - discount(net(cart))) * (1 + VAT))"),
        edit("src/price.js", "\nfunction round(amount) {\n  return Math.round(amount * 100) / 100;\n}\n", ""),
        edit("src/order.js", "total: total(cart),", "total: total(cart), discounted: true,"),
    ]
    tests = [
        write("test/discount.test.js", DISCOUNT_TEST),
        write("test/order.test.js", ORDER_TEST),
        edit("test/price.test.js", "assert.equal(total(cart), 119);", "assert.equal(total(cart), 107.1);"),
        edit("test/cart.test.js", "assert.equal(cart.lines.length, 1);", "assert.equal(cart.lines.length, 1);\n  assert.ok(!cart.isEmpty);"),
        add("src", "test"),
        commit("Carts from 50 get a discount"),
    ]
    words = [
        edit("README.md", "a cart, prices, an order.", "a cart, prices, discounts, an order."),
        edit("docs/prices.md", "The total adds VAT of 19 %.", "The total takes the discount off and adds VAT of 19 %."),
        folder("docs/decisions"),
        write("docs/decisions/0001-discount.md", "# Discounts are steps\n\nTwo steps, 5 % from 50 and 10 % from 100, before tax.\n"),
        add("README.md", "docs"),
        commit("Say what a discount is"),
    ]
    release = [
        edit("package.json", '"version": "1.2.0"', '"version": "1.3.0"'),
        write("CHANGELOG.md", "# Changes\n\n## 1.3.0\n\n- Carts from 50 get a discount.\n"),
        edit("src/main.js", "console.log(total(cart));", "console.log(`total ${total(cart)}`);"),
        add("package.json", "CHANGELOG.md", "src"),
        commit("Release 1.3.0"),
    ]
    return [
        files("directory_tree", path=str(root), excludePatterns=[".git"]),
        git("git_status"), git("git_log", max_count=5), git("git_branch", branch_type="local"),
        read("README.md"), read("package.json"), read("src/main.js"), read("src/cart.js"), read("src/price.js"), read("src/tax.js"),
        read("src/order.js"), read("src/util.js"), files("search_files", path=str(root), pattern="**/*.test.js"),
        code,
        read("src/price.js"), files("list_directory", path=at("src/pricing")), git("git_diff_unstaged"),
        read("test/cart.test.js"), read("test/price.test.js"),
        tests,
        git("git_status"), git("git_show", revision="HEAD"), read("docs/prices.md"), files("list_directory", path=at("docs")),
        words,
        git("git_log", max_count=2), read("docs/prices.md"), files("get_file_info", path=at("docs/decisions/0001-discount.md")),
        read("package.json"), git("git_diff", target="HEAD~1"),
        release,
        git("git_status"), git("git_log", max_count=4), git("git_show", revision="HEAD"),
    ]
