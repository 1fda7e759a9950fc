"""stub"""
def spark_lower(text: str) -> str:
    return text.lower()
