"""A page of HTML as a browser would see it."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """What a browser would see; fails on tags that do not fit together."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.texts, self.shares, self.waiting = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in VOID:
            self.open.append(tag)
        if "data-expression" in attributes:
            self.waiting.append((len(self.open), attributes["data-expression"], ""))

    def handle_startendtag(self, tag, attrs):
        assert "svg" in self.open, f"{tag} closes itself outside of SVG"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"{tag} is closed but not open"
        assert self.open[-1] == tag, (self.open, tag)
        if self.waiting and self.waiting[-1][0] == len(self.open):
            self.shares.append(self.waiting.pop()[1:])
        self.open.pop()

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if self.waiting:
            depth, expression, text = self.waiting.pop()
            self.waiting.append((depth, expression, text + data))

    @property
    def text(self):
        return " ".join(" ".join(data for tag, data in self.texts if tag != "style").split())

    def attributes(self, name):
        return [each[name] for _, each in self.tags if name in each]
